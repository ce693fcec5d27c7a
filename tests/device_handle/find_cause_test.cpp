#include <coxswain/device_handle/base/find_cause.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <exception>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using cox::CallError;
using cox::Error;
using cox::find_cause;

namespace {

const std::source_location unknown_site;

std::exception_ptr call_failure(CallError::Kind kind, std::exception_ptr cause = nullptr) {
  return std::make_exception_ptr(CallError(kind, to_string(kind), unknown_site, std::move(cause)));
}

/// Several failures, as a ServerError has.
class SeveralFailures final : public Error {
 public:
  explicit SeveralFailures(std::vector<std::exception_ptr> all)
      : Error("several", unknown_site, all.front()), all_(std::move(all)) {}
  [[nodiscard]] std::span<const std::exception_ptr> causes() const noexcept override { return all_; }

 private:
  std::vector<std::exception_ptr> all_;
};

}  // namespace

TEST_CASE("L12: find_cause finds a cause at any depth, the outermost first") {
  const Error outer("outer", unknown_site,
                    call_failure(CallError::Kind::Closed, call_failure(CallError::Kind::Expired)));
  const auto* const found = find_cause<CallError>(outer);
  REQUIRE(found != nullptr);
  CHECK(found->kind() == CallError::Kind::Closed);
  const auto* const deeper = find_cause<CallError>(outer, CallError::Kind::Expired);
  REQUIRE(deeper != nullptr);
  CHECK(std::string(deeper->what()) == "expired");
  CHECK(find_cause<CallError>(outer, CallError::Kind::Forked) == nullptr);
  CHECK(find_cause<std::logic_error>(outer) == nullptr);
  CHECK(find_cause<Error>(outer) == &outer);  // the error itself is searched, too
}

TEST_CASE("L12: find_cause searches all failures that an error keeps, not only the first") {
  const SeveralFailures several(
      {std::make_exception_ptr(std::runtime_error("one")), call_failure(CallError::Kind::Closed)});
  REQUIRE(find_cause<CallError>(several) != nullptr);
  CHECK(find_cause<CallError>(several)->kind() == CallError::Kind::Closed);
}

TEST_CASE("find_cause follows std::nested_exception and takes an exception_ptr, also an empty one") {
  std::exception_ptr error;
  try {
    try {
      std::rethrow_exception(call_failure(CallError::Kind::Closed));
    } catch (...) {
      std::throw_with_nested(std::runtime_error("nests it"));
    }
  } catch (...) {
    error = std::current_exception();
  }
  CHECK(find_cause<CallError>(error, CallError::Kind::Closed) != nullptr);
  CHECK(find_cause<CallError>(std::exception_ptr()) == nullptr);
  CHECK(find_cause<CallError>(std::make_exception_ptr(1)) == nullptr);
}

TEST_CASE("An error chain has a line for each level, says each thing once, and names the caller's line") {
  const auto at = std::source_location::current();
  const auto inner = std::make_exception_ptr(std::runtime_error("boom"));
  const auto middle = std::make_exception_ptr(Error("the kernel failed: boom", at, inner));
  const auto outer = std::make_exception_ptr(
      Error("host:0 is unhealthy: 1 operation failed: the kernel failed: boom (2 more)", unknown_site, middle));
  const std::string line = std::string(" (") + at.file_name() + ":" + std::to_string(at.line()) + ")";
  CHECK(cox::error_chain(outer) ==
        "host:0 is unhealthy: 1 operation failed (2 more)\nbecause: the kernel failed" + line + "\nbecause: boom");
  CHECK(cox::error_chain(inner) == "boom");
  CHECK(cox::error_chain(nullptr).empty());
  const auto named = [&](const char* text) {
    return cox::error_chain(std::make_exception_ptr(Error(text, unknown_site, inner)));
  };
  CHECK(named("kernel 'boomer' on host:0: boom (2 more)") == "kernel 'boomer' on host:0 (2 more)\nbecause: boom");
  CHECK(named("kernel 'boomer' on host:0") == "kernel 'boomer' on host:0\nbecause: boom");
}
