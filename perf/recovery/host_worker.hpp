#pragma once

#include <coxswain/perf/recovery/journal.hpp>
#include <coxswain/perf/recovery/recovery_options.hpp>

#include <csignal>

namespace cox::perf {

/// The worker on host devices; `signals` are blocked. Throws what prevents its start.
[[noreturn]] void run_host_worker(const RecoveryOptions& options, const Journal& journal, const sigset_t& signals);

}  // namespace cox::perf
