#include <coxswain/runtime/async/waiting_help.hpp>

#include <utility>

namespace cox::detail {
namespace {

thread_local std::function<void()> help_of_thread;

}  // namespace

void set_waiting_help(std::function<void()> help) { help_of_thread = std::move(help); }

const std::function<void()>* waiting_help() noexcept { return help_of_thread ? &help_of_thread : nullptr; }

}  // namespace cox::detail
