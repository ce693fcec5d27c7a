#include <data/random.hpp>
#include <data/token_order.hpp>
#include <kernel_cases.hpp>
#include <require.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

namespace train {
namespace {

using Type = CaseBuffer::Type;
using Role = CaseBuffer::Role;
using Buffers = std::vector<CaseBuffer>;

class Cases {
 public:
  Cases(bool large, const std::function<void(KernelCase&)>& use) : large_(large), use_(use) {}

  void make() {
    elementwise();
    for (const std::size_t width :
         {std::size_t{1}, std::size_t{7}, std::size_t{16}, std::size_t{64}, std::size_t{72}}) {
      rows(5, width);
      columns(37, width, 4);
      embedding(3, 5, width, 11);
      embedding(2, 4, width, 3);
    }
    rows(19, 33);
    columns(2, 130, 2);
    for (const std::size_t vocabulary : {std::size_t{1}, std::size_t{31}, std::size_t{76}, std::size_t{1040}})
      loss(3, vocabulary);
    loss(5, 1040, 30);
    for (const std::size_t size : {std::size_t{1}, std::size_t{5}, std::size_t{8193}, std::size_t{20000}})
      optimizer(size);
    for (int form = 0; form < 8; ++form) {
      product(1, 1, 1, 1, form);
      product(65, 70, 33, 1, form);
      product(7, 64, 16, 3, form);
    }
    attention(2, 3, 2, 2);
    attention(1, 9, 3, 5);
    attention(2, 16, 2, 8);
    attention(1, 70, 1, 16);
    if (large_) {
      rows(1000, 768);
      columns(4096, 3072, 128);
      embedding(4, 1024, 768, 50257);
      embedding(4, 1024, 768, 20);
      loss(50, 50304);
      loss(50, 50257);
      optimizer(1'000'001);
      for (int form = 0; form < 8; ++form) product(512, 768, 384, 2, form);
      attention(1, 1024, 4, 64);
    }
  }

 private:
  std::vector<float> normal(std::size_t count, float mean = 0.0F, float deviation = 1.0F) {
    constexpr std::size_t period = 65521;  // a prime: large tensors repeat the same numbers, in rows of other offsets
    std::vector<float> values(count);
    for (std::size_t i = 0; i < std::min(count, period); ++i) values[i] = mean + deviation * random_.normal();
    for (std::size_t i = period; i < count; ++i) values[i] = values[i - period];
    return values;
  }
  CaseBuffer activations(std::size_t count) { return {Type::Activation, Role::In, normal(count)}; }
  CaseBuffer floats(std::size_t count) { return {Type::Float, Role::In, normal(count)}; }
  CaseBuffer positive(std::size_t count) {
    CaseBuffer made = floats(count);
    for (float& value : made.values) value = std::abs(value) + 0.1F;
    return made;
  }
  static CaseBuffer integers(std::vector<std::int32_t> values) {
    return {Type::Integer, Role::In, {}, std::move(values)};
  }
  // Filled with values, so that an element that is not written is found.
  static CaseBuffer out(Type type, std::size_t count) { return {type, Role::Out, std::vector<float>(count, 1000.0F)}; }
  static CaseBuffer inout(CaseBuffer buffer) {
    buffer.role = Role::InOut;
    return buffer;
  }
  std::vector<std::int32_t> tokens(std::size_t count, std::size_t vocabulary) {
    std::vector<std::int32_t> made(count);
    // Most rows have one token, as the space in a text.
    for (std::int32_t& token : made)
      token = random_.next() % 2 == 0 ? 0 : static_cast<std::int32_t>(random_.next() % vocabulary);
    return made;
  }
  static std::uint32_t u32(std::size_t value) { return static_cast<std::uint32_t>(value); }

  void add(KernelId id, std::string label, Units units, Buffers buffers,
           std::vector<std::variant<std::uint32_t, float>> scalars, std::function<void(Buffers&)> reference = nullptr,
           std::size_t terms = 0) {
    KernelCase made{id, std::move(label), units, std::move(buffers), std::move(scalars), std::move(reference), terms};
    use_(made);
  }

  void elementwise() {
    std::vector<std::size_t> counts{1, 3, 4, 8, 9, 1023, 1024, 2048, 2049, 5000};
    if (large_) counts.push_back(2'000'001);
    for (const std::size_t count : counts) {
      const std::string label = std::to_string(count);
      const Units units{.columns = count};
      add(KernelId::Add, label, units, {out(Type::Activation, count), activations(count), activations(count)},
          {u32(count)});
      add(KernelId::GeluForward, label, units,
          {out(Type::Activation, count), {Type::Activation, Role::In, normal(count, 0, 3)}}, {u32(count)});
      add(KernelId::GeluBackward, label, units,
          {out(Type::Activation, count), activations(count), {Type::Activation, Role::In, normal(count, 0, 3)}},
          {u32(count)});
      add(KernelId::Zero, label, units, {out(Type::Float, count)}, {u32(count)});
      add(KernelId::Copy, label, units, {out(Type::Float, count), floats(count)}, {u32(count)});
      add(KernelId::RoundElements, label, units, {out(Type::Activation, count), floats(count)}, {u32(count)},
          [](Buffers& buffers) { buffers[0].values = buffers[1].values; });
    }
  }

  void rows(std::size_t count, std::size_t width) {
    const std::string label = std::to_string(count) + " x " + std::to_string(width);
    const std::size_t all = count * width;
    const Units by_row{.rows = count};
    add(KernelId::AddBias, label, {.columns = all}, {inout(activations(all)), activations(width)},
        {u32(count), u32(width)});
    add(KernelId::LayerNormForward, label, by_row,
        {out(Type::Activation, all),
         out(Type::Float, count),
         out(Type::Float, count),
         {Type::Activation, Role::In, normal(all, 0.5F, 2.0F)},
         activations(width),
         activations(width)},
        {u32(count), u32(width)});
    for (const std::uint32_t accumulate : {0U, 1U})
      add(KernelId::LayerNormBackwardInput, label + (accumulate != 0 ? ", added" : ""), by_row,
          {inout(activations(all)), activations(all), activations(all), floats(count), positive(count),
           activations(width)},
          {u32(count), u32(width), accumulate});
  }

  void columns(std::size_t count, std::size_t width, std::size_t chunks) {
    const std::string label =
        std::to_string(count) + " x " + std::to_string(width) + " in " + std::to_string(chunks) + " chunks";
    const std::size_t all = count * width;
    const Units units{.rows = chunks, .columns = width};
    add(KernelId::BiasBackwardChunks, label, units, {out(Type::Float, chunks * width), activations(all)},
        {u32(count), u32(width), u32(chunks)});
    add(KernelId::LayerNormBackwardChunks, label, units,
        {out(Type::Float, chunks * 2 * width), activations(all), activations(all), floats(count), positive(count)},
        {u32(count), u32(width), u32(chunks)});
    for (const std::uint32_t accumulate : {0U, 1U})
      add(KernelId::SumChunks, label + (accumulate != 0 ? ", added" : ""), {.columns = width},
          {inout(floats(width)), floats(chunks * (2 * width + 1))},
          {u32(chunks), u32(2 * width + 1), u32(width), u32(width), accumulate});
  }

  void embedding(std::size_t samples, std::size_t context, std::size_t width, std::size_t vocabulary) {
    const std::size_t count = samples * context;
    const std::string label =
        std::to_string(count) + " x " + std::to_string(width) + " of " + std::to_string(vocabulary);
    const std::vector<std::int32_t> of_rows = tokens(count, vocabulary);
    const std::size_t runs = std::min(count, vocabulary);
    const TokenOrder sorted(of_rows, runs);
    add(KernelId::EmbedForward, label, {.columns = count * width},
        {out(Type::Activation, count * width), integers(of_rows), activations(vocabulary * width),
         activations(context * width)},
        {u32(count), u32(context), u32(width)});
    add(KernelId::EmbedBackwardTokens, label, {.rows = runs, .columns = width},
        {inout(floats(vocabulary * width)), activations(count * width), integers(of_rows), integers(sorted.order),
         integers(sorted.begins)},
        {u32(count), u32(width), u32(runs)}, nullptr, static_cast<std::size_t>(std::ranges::count(of_rows, 0)));
    for (const std::uint32_t accumulate : {0U, 1U})
      add(KernelId::EmbedBackwardPositions, label + (accumulate != 0 ? ", added" : ""), {.columns = context * width},
          {inout(floats(context * width)), activations(count * width)},
          {u32(count), u32(context), u32(width), accumulate});
  }

  void loss(std::size_t count, std::size_t vocabulary, float deviation = 3) {
    const std::string label = std::to_string(count) + " x " + std::to_string(vocabulary);
    std::vector<std::int32_t> targets = tokens(count, vocabulary);
    targets.back() = static_cast<std::int32_t>(vocabulary - 1);
    add(KernelId::CrossEntropy, label, {.rows = count},
        {out(Type::Float, count), inout({Type::Activation, Role::In, normal(count * vocabulary, 1, deviation)}),
         integers(targets)},
        {u32(count), u32(vocabulary), 0.25F});
    for (const std::uint32_t accumulate : {0U, 1U})
      add(KernelId::Mean, label, {}, {inout(floats(1)), positive(count * 400)}, {u32(count * 400), 0.125F, accumulate});
  }

  void optimizer(std::size_t count) {
    const std::string label = std::to_string(count);
    const std::size_t sums = (count + square_sum_elements - 1) / square_sum_elements;
    for (const std::size_t offset : {std::size_t{0}, std::size_t{3}}) {
      CaseBuffer x = floats(count);
      x.offset = offset;
      add(KernelId::SquareSum, label + " at " + std::to_string(offset), {.columns = count}, {out(Type::Float, sums), x},
          {u32(count)});
      Buffers state{inout(floats(count)), inout(floats(count)), inout(positive(count)), floats(count)};
      for (CaseBuffer& buffer : state) buffer.offset = offset;
      state.push_back({Type::Float, Role::In, {0.5F}});
      state.push_back({Type::Float, Role::In, {0.01F, 2.0F, 3.0F}});
      const std::vector<std::variant<std::uint32_t, float>> scalars{u32(count), 0.9F, 0.95F, 1e-8F, 0.1F};
      add(KernelId::AdamW, label + " at " + std::to_string(offset), {.columns = count}, state, scalars);
      CaseBuffer rounded = out(Type::Activation, count);
      rounded.offset = offset;
      state.insert(state.begin() + 3, rounded);
      add(KernelId::AdamWRounded, label + " at " + std::to_string(offset), {.columns = count}, state, scalars, adam_w);
    }
    add(KernelId::Total, label, {}, {out(Type::Float, 1), floats(count)}, {u32(count)});
    for (const float square : {0.25F, 16.0F})
      add(KernelId::ClipFactor, label, {}, {out(Type::Float, 1), {Type::Float, Role::In, {square}}}, {1.0F});
  }
  static void adam_w(Buffers& b) {
    for (std::size_t i = 0; i < b[0].values.size(); ++i) {
      const float g = b[4].values[i] * b[5].values[0];
      float& m = b[1].values[i];
      float& v = b[2].values[i];
      float& p = b[0].values[i];
      m = 0.9F * m + (1.0F - 0.9F) * g;
      v = 0.95F * v + (1.0F - 0.95F) * g * g;
      p = p * (1.0F - b[6].values[0] * 0.1F) -
          b[6].values[0] * (m * b[6].values[1]) / (std::sqrt(v * b[6].values[2]) + 1e-8F);
    }
    b[3].values = b[0].values;
  }

  void product(std::size_t m, std::size_t n, std::size_t k, std::size_t batch, int form) {
    const auto flag = [&](int bit) { return (form & bit) != 0 ? 1U : 0U; };
    const std::string label = std::to_string(batch) + " x " + std::to_string(m) + " x " + std::to_string(n) + " x " +
                              std::to_string(k) + ", form " + std::to_string(form);
    for (const bool to_float : {false, true}) {
      CaseBuffer result = to_float ? floats(batch * m * n) : activations(batch * m * n);
      add(to_float ? KernelId::MatrixProductFloat : KernelId::MatrixProduct, label,
          {.rows = m, .columns = n, .batch = batch},
          {inout(std::move(result)), activations(batch * m * k), activations(batch * k * n)},
          {u32(m), u32(n), u32(k), flag(1), flag(2), flag(4), u32(batch)});
    }
  }

  void attention(std::size_t samples, std::size_t length, std::size_t heads, std::size_t depth) {
    const std::string label = std::to_string(samples) + " x " + std::to_string(length) + " x " + std::to_string(heads) +
                              " x " + std::to_string(depth);
    for (const std::size_t parts : {std::size_t{1}, std::size_t{3}}) {
      const std::size_t count = samples * length * parts * heads * depth;
      const std::vector<std::variant<std::uint32_t, float>> scalars{u32(samples), u32(length), u32(parts), u32(heads),
                                                                    u32(depth)};
      const auto reorder = [=](Buffers& buffers, bool split) {
        std::size_t at = 0;
        for (std::size_t sample = 0; sample < samples; ++sample)
          for (std::size_t position = 0; position < length; ++position)
            for (std::size_t part = 0; part < parts; ++part)
              for (std::size_t head = 0; head < heads; ++head)
                for (std::size_t i = 0; i < depth; ++i, ++at) {
                  const std::size_t by_head =
                      (((part * samples + sample) * heads + head) * length + position) * depth + i;
                  buffers[0].values[split ? by_head : at] = buffers[1].values[split ? at : by_head];
                }
      };
      add(KernelId::SplitHeads, label, {.columns = count}, {out(Type::Activation, count), activations(count)}, scalars,
          [=](Buffers& buffers) { reorder(buffers, true); });
      add(KernelId::MergeHeads, label, {.columns = count}, {out(Type::Activation, count), activations(count)}, scalars,
          [=](Buffers& buffers) { reorder(buffers, false); });
    }
    const std::size_t count = samples * heads * length;
    const float scale = 0.3F;
    add(KernelId::CausalSoftmax, label, {.rows = count},
        {inout({Type::Activation, Role::In, normal(count * length, 0, 4)})}, {u32(count), u32(length), scale},
        [=](Buffers& buffers) {
          for (std::size_t row = 0; row < count; ++row) {
            float* const x = buffers[0].values.data() + row * length;
            const std::size_t visible = row % length + 1;
            double total = 0;
            for (std::size_t i = 0; i < visible; ++i) total += std::exp(static_cast<double>(x[i] * scale));
            for (std::size_t i = 0; i < length; ++i)
              x[i] = i < visible ? static_cast<float>(std::exp(static_cast<double>(x[i] * scale)) / total) : 0.0F;
          }
        });
    CaseBuffer probabilities = positive(count * length);
    probabilities.type = Type::Activation;
    add(KernelId::CausalSoftmaxBackward, label, {.rows = count}, {inout(activations(count * length)), probabilities},
        {u32(count), u32(length), scale}, [=](Buffers& buffers) {
          for (std::size_t row = 0; row < count; ++row) {
            float* const d = buffers[0].values.data() + row * length;
            const float* const p = buffers[1].values.data() + row * length;
            const std::size_t visible = row % length + 1;
            double mean = 0;
            for (std::size_t i = 0; i < visible; ++i) mean += static_cast<double>(d[i]) * static_cast<double>(p[i]);
            for (std::size_t i = 0; i < length; ++i)
              d[i] = i < visible ? p[i] * (d[i] - static_cast<float>(mean)) * scale : 0.0F;
          }
        });
  }

  bool large_;
  Random random_{1, "kernel_cases"};
  const std::function<void(KernelCase&)>& use_;
};

}  // namespace

std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

float from_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

void for_each_kernel_case(bool large, const std::function<void(KernelCase&)>& use) { Cases(large, use).make(); }

void round_inputs(KernelCase& given) {
  for (CaseBuffer& buffer : given.buffers)
    if (buffer.type == Type::Activation)
      for (float& value : buffer.values) value = from_bfloat16(to_bfloat16(value));
}

void compare(const KernelCase& given, const std::vector<CaseBuffer>& got, const std::vector<CaseBuffer>& expected,
             bool bfloat16, bool rounded_twice) {
  const KernelSource& source = kernel_sources()[static_cast<std::size_t>(given.id)];
  const std::string name = std::string(source.name) + (bfloat16 ? " (bf16) " : " ") + given.label;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].role == Role::In) continue;
    const std::vector<float>& a = got[i].values;
    const std::vector<float>& b = expected[i].values;
    require(a.size() == b.size(), name.c_str());
    double square = 0;
    for (const float value : b) square += static_cast<double>(value) * static_cast<double>(value);
    // Sums of many terms lose what is small beside the largest terms: hence a share of the typical magnitude.
    const double typical = std::sqrt(square / static_cast<double>(b.size()));
    const bool is_rounded = got[i].type == Type::Activation && bfloat16;
    const double relative = is_rounded ? 0x1p-7 : 1e-4;  // sums that differ little may be rounded to neighbours
    // The partial sums of n numbers of deviation 1 grow as the root of their number, so their roundings add up to about
    // 2^-25 n / sqrt(2); with a margin of 6.
    const double of_sum = 0x1p-23 * static_cast<double>(given.terms);
    const double absolute = (is_rounded && rounded_twice ? 0x1p-8 * typical : 2e-5 * typical) + of_sum;
    for (std::size_t j = 0; j < a.size(); ++j) {
      const auto x = static_cast<double>(a[j]);
      const auto y = static_cast<double>(b[j]);
      if (std::abs(x - y) <= relative * std::abs(y) + absolute + 1e-30) continue;
      std::fprintf(stderr, "buffer %zu, element %zu of %zu: %.9g instead of %.9g\n", i, j, a.size(), x, y);
      require(false, name.c_str());
    }
  }
}

}  // namespace train
