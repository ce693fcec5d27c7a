#pragma once

#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
// Without FMA: a product and the sum after it must be rounded separately.
#define COX_TARGET_AVX2 [[gnu::target("avx2,f16c")]]
#else
#define COX_TARGET_AVX2
#endif

namespace cox::detail {

/// An instruction set that the reduction loops are compiled for. All of them compute the same bits.
enum class InstructionSet : std::uint8_t {
  Portable,
  Avx2,  ///< AVX2 and F16C. Runs on x86-64 only.
};
inline constexpr std::array instruction_sets{InstructionSet::Portable, InstructionSet::Avx2};

#if defined(__x86_64__)
/// clang 16 does not know "f16c" in __builtin_cpu_supports.
[[nodiscard]] inline bool supports_f16c() noexcept {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

/// Whether this processor supports the instruction set.
[[nodiscard]] inline bool can_run(InstructionSet set) noexcept {
#if defined(__x86_64__)
  return set == InstructionSet::Portable || (__builtin_cpu_supports("avx2") && supports_f16c());
#else
  return set == InstructionSet::Portable;
#endif
}

[[nodiscard]] inline InstructionSet best_instruction_set() noexcept {
  return can_run(InstructionSet::Avx2) ? InstructionSet::Avx2 : InstructionSet::Portable;
}

}  // namespace cox::detail
