#include <coxswain/tests/servers/contract/program_kernels.hpp>

namespace cox::test {
namespace {

struct Slice {
  std::size_t begin;
  std::size_t end;
};

Slice slice_of(std::size_t size, std::uint64_t cube) {
  const auto part = static_cast<std::size_t>(cube % cubes_for_all);
  return {size * part / cubes_for_all, size * (part + 1) / cubes_for_all};
}

template <class F>
void for_each_of_slice(std::span<std::uint32_t> out, std::uint64_t cube, F&& f) {
  const Slice slice = slice_of(out.size(), cube);
  for (std::size_t i = slice.begin; i < slice.end; ++i) f(out[i], static_cast<std::uint32_t>(i));
}

std::uint32_t wrapped(std::span<const std::uint32_t> in, std::uint32_t i) {
  return in[i % static_cast<std::uint32_t>(in.size())];
}

void scale_add(std::span<std::uint32_t> out, std::uint64_t cube, const ProgramScalars& scalars) {
  const Slice slice = slice_of(out.size(), cube);
  for (std::uint32_t pass = 0; pass < scalars.passes; ++pass)
    for (std::size_t i = slice.begin; i < slice.end; ++i) out[i] = out[i] * scalars.factor + scalars.summand;
}

void reduce(const ProgramJob& job, std::uint64_t cube, const ProgramOperands& operands, std::uint32_t factor) {
  std::uint32_t sum = 0;
  for (std::size_t k = 0; k < job.ins; ++k) {
    const Slice slice = slice_of(operands.in[k].size(), cube);
    for (std::size_t i = slice.begin; i < slice.end; ++i) sum += operands.in[k][i];
  }
  operands.out[0][0] = operands.out[0][0] * factor + sum;
}

}  // namespace

void run_cube(const ProgramJob& job, const ProgramScalars& scalars, std::uint64_t cube,
              const ProgramOperands& operands) {
  const auto [factor, summand, passes] = scalars;
  if (job.kernel == ProgramKernel::Reduce) return reduce(job, cube, operands, factor);
  for (std::size_t k = 0; k < job.outs; ++k) {
    const std::span<std::uint32_t> out = operands.out[k];
    const std::span<const std::uint32_t> in = operands.in[job.ins == 0 ? 0 : k % job.ins];
    const auto each = [&](auto f) { for_each_of_slice(out, cube, f); };
    switch (job.kernel) {
      case ProgramKernel::Fill:
        each([&](std::uint32_t& value, std::uint32_t i) { value = i * factor + summand; });
        break;
      case ProgramKernel::ScaleAdd: scale_add(out, cube, scalars); break;
      case ProgramKernel::Copy: each([&](std::uint32_t& value, std::uint32_t i) { value = wrapped(in, i); }); break;
      case ProgramKernel::Permute:
        each([&](std::uint32_t& value, std::uint32_t i) { value = wrapped(in, i * factor + summand); });
        break;
      case ProgramKernel::Mix:
        each([&](std::uint32_t& value, std::uint32_t i) { value = value * factor + wrapped(in, i); });
        break;
      case ProgramKernel::Count:
        each([&](std::uint32_t& value, std::uint32_t i) {
          const std::uint32_t given = wrapped(in, i);
          value = given % 16 == 0 ? 0 : 1 + given % 2;
        });
        break;
      case ProgramKernel::Reduce: break;
    }
  }
}

template <>
HostKernel program_kernel<HostBackend>(const ProgramJob& job) {
  return {job.name, CubeDim::single(), job.ins + job.outs, [job](const KernelContext& context) {
            ProgramOperands operands;
            for (std::size_t i = 0; i < job.ins; ++i) {
              const auto view = context.buffer<const std::uint32_t>(i);
              operands.in[i] = {view.data(), view.size()};
            }
            for (std::size_t i = 0; i < job.outs; ++i) {
              const auto view = context.buffer<std::uint32_t>(job.ins + i);
              operands.out[i] = {view.data(), view.size()};
            }
            const ProgramScalars scalars{context.scalar<std::uint32_t>(0), context.scalar<std::uint32_t>(1),
                                         context.scalar<std::uint32_t>(2)};
            run_cube(job, scalars, context.linear_cube_index(), operands);
          }};
}

}  // namespace cox::test
