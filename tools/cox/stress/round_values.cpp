#include <coxswain/tools/cox/stress/round_values.hpp>

#include <coxswain/tools/cox/stress/random.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

namespace cox::stress {
namespace {

// The bits of F16 and BF16 elements. They are small whole numbers, which both types hold exactly.
struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

template <class T>
constexpr bool is_float = std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, Brain>;

template <class T>
T from_whole(std::int64_t value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if constexpr (std::is_same_v<T, Brain>) {
    return {static_cast<std::uint16_t>(bits >> 16U)};
  } else if constexpr (std::is_same_v<T, Half>) {
    if (value == 0) return {0};
    const std::uint32_t exponent = ((bits >> 23U) & 0xFFU) - 127 + 15;
    return {static_cast<std::uint16_t>((bits >> 16U & 0x8000U) | exponent << 10U | (bits >> 13U & 0x3FFU))};
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
double to_double(T value) {
  if constexpr (std::is_same_v<T, Brain>) {
    return std::bit_cast<float>(std::uint32_t{value.bits} << 16U);
  } else if constexpr (std::is_same_v<T, Half>) {
    const std::uint32_t bits = value.bits;
    if ((bits & 0x7FFFU) == 0) return 0;
    const std::uint32_t exponent = (bits >> 10U & 0x1FU) + 127 - 15;
    return std::bit_cast<float>((bits & 0x8000U) << 16U | exponent << 23U | (bits & 0x3FFU) << 13U);
  } else {
    return value;
  }
}

// Upper bound of all results, and of all intermediate values that an element type must hold.
constexpr std::int64_t largest_whole = 256;

// Generates the whole numbers of a rank's source.
class WholeNumbers {
 public:
  WholeNumbers(const RoundPart& part, std::size_t ranks, std::size_t rank)
      : random_(Random::derived(part.seed, rank)),
        reduce_(part.reduce),
        ranks_(ranks),
        until_two_(rank),
        bound_(std::max<std::int64_t>(1, largest_whole / static_cast<std::int64_t>(ranks))) {}

  std::int64_t next() {
    if (reduce_ == ReduceOperation::Product) return product_factor();
    const std::int64_t value = (quarter() * (2 * bound_ + 1) >> 16U) - bound_;
    return reduce_ == ReduceOperation::Mean ? value * static_cast<std::int64_t>(ranks_) : value;
  }

 private:
  // For each element, one rank contributes 2 and the others 1, with random signs.
  std::int64_t product_factor() {
    const bool two = until_two_ == 0;
    until_two_ = two ? ranks_ - 1 : until_two_ - 1;
    return (two ? 2 : 1) * (quarter() % 2 == 0 ? 1 : -1);
  }
  // 16 random bits.
  std::int64_t quarter() {
    if (quarters_ == 0) {
      word_ = random_.next();
      quarters_ = 4;
    }
    --quarters_;
    const auto bits = static_cast<std::int64_t>(word_ & 0xFFFFU);
    word_ >>= 16U;
    return bits;
  }

  Random random_;
  ReduceOperation reduce_;
  std::size_t ranks_;
  std::size_t until_two_;
  std::int64_t bound_;
  std::uint64_t word_ = 0;
  unsigned quarters_ = 0;  // left in word_
};

// The mean, rounded towards zero. Quotients and remainders are summed separately, so that no sum overflows.
template <class T>
T mean(const std::vector<T>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  if constexpr (std::is_unsigned_v<T>) {
    std::uint64_t whole = 0;
    std::uint64_t rest = 0;
    for (const T value : values) {
      whole += static_cast<std::uint64_t>(value) / static_cast<std::uint64_t>(count);
      rest += static_cast<std::uint64_t>(value) % static_cast<std::uint64_t>(count);
    }
    return static_cast<T>(whole + rest / static_cast<std::uint64_t>(count));
  } else {
    std::int64_t whole = 0;
    std::int64_t rest = 0;
    for (const T value : values) {
      whole += static_cast<std::int64_t>(value) / count;
      rest += static_cast<std::int64_t>(value) % count;
    }
    whole += rest / count;
    rest %= count;
    if (whole > 0 && rest < 0) --whole;
    if (whole < 0 && rest > 0) ++whole;
    return static_cast<T>(whole);
  }
}

template <class T>
void add_to(T& result, T value, ReduceOperation operation) {
  // Unsigned, so that it wraps; not narrower than int, which would be signed.
  using Wrapping = std::make_unsigned_t<std::conditional_t<(sizeof(T) < sizeof(int)), int, T>>;
  switch (operation) {
    case ReduceOperation::Product:
      result = static_cast<T>(static_cast<Wrapping>(result) * static_cast<Wrapping>(value));
      break;
    case ReduceOperation::Min: result = std::min(result, value); break;
    case ReduceOperation::Max: result = std::max(result, value); break;
    default: result = static_cast<T>(static_cast<Wrapping>(result) + static_cast<Wrapping>(value)); break;
  }
}
inline void add_to(double& result, double value, ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::Product: result *= value; break;
    case ReduceOperation::Min: result = std::min(result, value); break;
    case ReduceOperation::Max: result = std::max(result, value); break;
    default: result += value; break;
  }
}

bool reduces(const RoundPart& part) { return facts_of(part.operation).reduces; }

// Calls f(T()) for the type; false, without a call, if the type is not reduced here.
template <class F>
bool with_type(ElementType type, F&& f) {
  switch (type) {
    case ElementType::I8: return f(std::int8_t{}), true;
    case ElementType::I16: return f(std::int16_t{}), true;
    case ElementType::I32: return f(std::int32_t{}), true;
    case ElementType::I64: return f(std::int64_t{}), true;
    case ElementType::U8: return f(std::uint8_t{}), true;
    case ElementType::U16: return f(std::uint16_t{}), true;
    case ElementType::U32: return f(std::uint32_t{}), true;
    case ElementType::U64: return f(std::uint64_t{}), true;
    case ElementType::F16: return f(Half{}), true;
    case ElementType::BF16: return f(Brain{}), true;
    case ElementType::F32: return f(float{}), true;
    case ElementType::F64: return f(double{}), true;
    default: return false;
  }
}

ByteVector random_bytes(std::size_t size, Random& random) {
  ByteVector bytes(size);
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), size - at));
  }
  return bytes;
}

template <class T>
std::vector<T> elements_of(const ByteVector& bytes) {
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

template <class T>
ByteVector bytes_of(const std::vector<T>& elements) {
  ByteVector bytes(elements.size() * sizeof(T));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

template <class T>
ByteVector whole_numbers(const RoundPart& part, std::size_t ranks, std::size_t rank, std::size_t size) {
  WholeNumbers numbers(part, ranks, rank);
  std::vector<T> elements(size / sizeof(T));
  for (T& element : elements) element = from_whole<T>(numbers.next());
  return bytes_of(elements);
}

// A random sign, an exponent near 0 and a random mantissa.
template <class T>
T any_fraction(std::uint64_t random) {
  const double value = std::ldexp(1 + static_cast<double>(random >> 12U) * 0x1p-52, static_cast<int>(random & 7U) - 4);
  const double fraction = (random & 8U) != 0 ? value : -value;
  if constexpr (std::is_same_v<T, Brain>) {
    return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(fraction)) >> 16U)};
  } else if constexpr (std::is_same_v<T, Half>) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(fraction));
    const std::uint32_t exponent = ((bits >> 23U) & 0xFFU) - 127 + 15;
    return {static_cast<std::uint16_t>((bits >> 16U & 0x8000U) | exponent << 10U | (bits >> 13U & 0x3FFU))};
  } else {
    return static_cast<T>(fraction);
  }
}

template <class T>
ByteVector fractions(const RoundPart& part, std::size_t rank, std::size_t size) {
  Random random(Random::derived(part.seed, rank));
  std::vector<T> elements(size / sizeof(T));
  for (T& element : elements) element = any_fraction<T>(random.next());
  return bytes_of(elements);
}

template <class T>
ByteVector reduce_floats(const RoundPart& part, const std::vector<ByteVector>& sources) {
  std::vector<T> result = elements_of<T>(sources.front());
  std::vector<double> sums(result.size());
  std::ranges::transform(result, sums.begin(), to_double<T>);
  for (std::size_t rank = 1; rank < sources.size(); ++rank) {
    const std::vector<T> values = elements_of<T>(sources[rank]);
    for (std::size_t i = 0; i < sums.size(); ++i) add_to(sums[i], to_double(values[i]), part.reduce);
  }
  const double divisor = part.reduce == ReduceOperation::Mean ? static_cast<double>(sources.size()) : 1;
  std::ranges::transform(sums, result.begin(),
                         [&](double sum) { return from_whole<T>(static_cast<std::int64_t>(sum / divisor)); });
  return bytes_of(result);
}

template <class T>
ByteVector mean_of_integers(const std::vector<ByteVector>& sources) {
  std::vector<T> result(sources.front().size() / sizeof(T));
  std::vector<T> values(sources.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t rank = 0; rank < sources.size(); ++rank)
      std::memcpy(&values[rank], sources[rank].data() + i * sizeof(T), sizeof(T));
    result[i] = mean(values);
  }
  return bytes_of(result);
}

template <class T>
ByteVector reduce_integers(const RoundPart& part, const std::vector<ByteVector>& sources) {
  if (part.reduce == ReduceOperation::Mean) return mean_of_integers<T>(sources);
  std::vector<T> result = elements_of<T>(sources.front());
  for (std::size_t rank = 1; rank < sources.size(); ++rank) {
    const std::vector<T> values = elements_of<T>(sources[rank]);
    for (std::size_t i = 0; i < result.size(); ++i) add_to(result[i], values[i], part.reduce);
  }
  return bytes_of(result);
}

ByteVector reduction(const RoundPart& part, const std::vector<ByteVector>& sources) {
  ByteVector result;
  with_type(part.type, [&](auto element) {
    using T = decltype(element);
    if constexpr (is_float<T>)
      result = reduce_floats<T>(part, sources);
    else
      result = reduce_integers<T>(part, sources);
  });
  return result;
}

ByteVector block_of(const ByteVector& all, std::size_t block, std::size_t size) {
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(block * size);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

// 0 for a rank that does not use such a buffer.
std::size_t bytes_of_rank(const RoundPart& part, bool has_part, std::size_t blocks) {
  if (!has_part || part.operation == CollectiveOperation::Barrier) return 0;
  return blocks * part.count * element_size(part.type);
}

}  // namespace

std::size_t source_bytes(const RoundPart& part, std::size_t ranks, std::size_t rank) {
  const CollectiveOperation operation = part.operation;
  const bool gives = operation == CollectiveOperation::Send
                         ? rank == 0
                         : operation != CollectiveOperation::Broadcast || rank == part.root;
  return bytes_of_rank(part, gives, facts_of(operation).input_of_all_size ? ranks : 1);
}

std::size_t result_bytes(const RoundPart& part, std::size_t ranks, std::size_t rank) {
  const CollectiveOperation operation = part.operation;
  const bool gets = operation == CollectiveOperation::Send
                        ? rank == 1
                        : operation != CollectiveOperation::Reduce || rank == part.root;
  return bytes_of_rank(part, gets, facts_of(operation).output_of_all_size ? ranks : 1);
}

ByteVector source_of(const RoundPart& part, std::size_t ranks, std::size_t rank) {
  const std::size_t size = source_bytes(part, ranks, rank);
  std::optional<ByteVector> whole;
  if (reduces(part))
    with_type(part.type, [&](auto element) {
      using T = decltype(element);
      if constexpr (is_float<T>)
        whole = part.rounded ? fractions<T>(part, rank, size) : whole_numbers<T>(part, ranks, rank, size);
    });
  if (whole) return std::move(*whole);
  Random random(Random::derived(part.seed, rank));
  return random_bytes(size, random);
}

RoundValues::RoundValues(const RoundPart& part, std::size_t ranks) : part_(part) {
  for (std::size_t rank = 0; rank < ranks; ++rank) sources_.push_back(source_of(part, ranks, rank));
  if (!reduces(part)) return;
  ByteVector reduced = reduction(part, sources_);
  sources_.clear();
  sources_.push_back(std::move(reduced));
}

ByteVector RoundValues::result_of(std::size_t rank) const {
  const std::size_t block = part_.count * element_size(part_.type);
  ByteVector result;
  switch (part_.operation) {
    case CollectiveOperation::AllReduce: return sources_.front();
    case CollectiveOperation::Reduce: return rank == part_.root ? sources_.front() : result;
    case CollectiveOperation::Broadcast: return sources_[part_.root];
    case CollectiveOperation::ReduceScatter: return block_of(sources_.front(), rank, block);
    case CollectiveOperation::Send:
    case CollectiveOperation::Receive: return rank == 1 ? sources_.front() : result;
    case CollectiveOperation::Barrier: return result;
    case CollectiveOperation::AllGather:
    case CollectiveOperation::AllToAll: break;
  }
  for (const ByteVector& source : sources_) {
    const ByteVector given = part_.operation == CollectiveOperation::AllToAll ? block_of(source, rank, block) : source;
    result.insert(result.end(), given.begin(), given.end());
  }
  return result;
}

}  // namespace cox::stress
