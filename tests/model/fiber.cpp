#include <coxswain/tests/model/fiber.hpp>

#include <cxxabi.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#define COX_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COX_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define COX_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COX_FIBER_TSAN 1
#endif
#endif

#if defined(COX_FIBER_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(COX_FIBER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
// Keeps what the System V ABI asks a callee to keep. Unlike swapcontext it makes no system call.
extern "C" void cox_model_switch_stack(void** save_stack_pointer, void* load_stack_pointer) noexcept;
asm(R"(
.text
.globl cox_model_switch_stack
.type cox_model_switch_stack, @function
cox_model_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cox_model_switch_stack, .-cox_model_switch_stack
)");
#endif

namespace cox::model {
namespace {

constexpr std::uint64_t canary = 0xC0C5'3A1E'5AFE'57ACULL;

thread_local Fiber* previous_fiber = nullptr;
thread_local Fiber* running_fiber = nullptr;

}  // namespace

Fiber::Fiber() {
#if defined(COX_FIBER_TSAN)
  sanitizer_state_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*entry)(void*), void* argument)
    : entry_(entry),
      argument_(argument),
      stack_(new std::byte[stack_bytes]),
      stack_bottom_(stack_.get()),
      stack_size_(stack_bytes) {
  std::memcpy(stack_.get(), &canary, sizeof(canary));
#if defined(__x86_64__)
  const auto top = (reinterpret_cast<std::uintptr_t>(stack_.get()) + stack_bytes) & ~std::uintptr_t{63};
  // From the top: a null return address of `begin`, `begin` itself as what `ret` pops, six zero registers.
  auto* words = reinterpret_cast<std::uintptr_t*>(top) - 8;
  std::fill(words, words + 8, std::uintptr_t{0});
  words[6] = reinterpret_cast<std::uintptr_t>(&Fiber::begin);
  stack_pointer_ = words;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = stack_bytes;
  makecontext(&context_, &Fiber::begin, 0);
#endif
#if defined(COX_FIBER_TSAN)
  sanitizer_state_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(COX_FIBER_TSAN)
  if (stack_) __tsan_destroy_fiber(sanitizer_state_);
#endif
}

void Fiber::begin() noexcept {
#if defined(COX_FIBER_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &previous_fiber->stack_bottom_, &previous_fiber->stack_size_);
#endif
  running_fiber->entry_(running_fiber->argument_);
  std::abort();
}

void Fiber::switch_to(Fiber& from, Fiber& to) noexcept {
  void* globals = abi::__cxa_get_globals();
  std::memcpy(&from.exceptions_, globals, sizeof(ExceptionState));
  std::memcpy(globals, &to.exceptions_, sizeof(ExceptionState));
  previous_fiber = &from;
  running_fiber = &to;
#if defined(COX_FIBER_ASAN)
  __sanitizer_start_switch_fiber(&from.sanitizer_state_, to.stack_bottom_, to.stack_size_);
#endif
#if defined(COX_FIBER_TSAN)
  __tsan_switch_to_fiber(to.sanitizer_state_, 0);
#endif
#if defined(__x86_64__)
  cox_model_switch_stack(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
#if defined(COX_FIBER_ASAN)
  __sanitizer_finish_switch_fiber(from.sanitizer_state_, &previous_fiber->stack_bottom_, &previous_fiber->stack_size_);
#endif
}

bool Fiber::intact() const noexcept { return !stack_ || std::memcmp(stack_.get(), &canary, sizeof(canary)) == 0; }

}  // namespace cox::model
