#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace cox {

template <class Signature>
class UniqueFunction;

/// A callable that may be move-only, like std::move_only_function of C++23. Captures of up to 64 bytes are stored
/// inside it. Calling an empty one is undefined; test it first.
template <class R, class... A>
class UniqueFunction<R(A...)> {
 public:
  UniqueFunction() noexcept = default;
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> &&
             std::is_invocable_r_v<R, std::decay_t<F>&, A...>)
  UniqueFunction(F&& function) {  // NOLINT(google-explicit-constructor): a callable converts, as in the standard
    using Callable = std::decay_t<F>;
    if constexpr (fits<Callable>) {
      ::new (static_cast<void*>(storage_)) Callable(std::forward<F>(function));
      operations_ = &inline_operations<Callable>;
    } else {
      ::new (static_cast<void*>(storage_)) Callable*(new Callable(std::forward<F>(function)));
      operations_ = &heap_operations<Callable>;
    }
  }
  UniqueFunction(UniqueFunction&& other) noexcept { take(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~UniqueFunction() { reset(); }

  [[nodiscard]] explicit operator bool() const noexcept { return operations_ != nullptr; }
  R operator()(A... arguments) { return operations_->call(storage_, std::forward<A>(arguments)...); }
  /// Destroys the callable and its captures now.
  void reset() noexcept {
    if (const auto* operations = std::exchange(operations_, nullptr)) operations->destroy(storage_);
  }

 private:
  struct Operations {
    R (*call)(void*, A&&...);
    void (*move)(void* from, void* to) noexcept;
    void (*destroy)(void*) noexcept;
  };
  static constexpr std::size_t inline_size = 64;
  template <class F>
  static constexpr bool fits =
      sizeof(F) <= inline_size && alignof(F) <= alignof(std::max_align_t) && std::is_nothrow_move_constructible_v<F>;
  template <class F>
  static constexpr Operations inline_operations{
      [](void* at, A&&... arguments) -> R { return (*static_cast<F*>(at))(std::forward<A>(arguments)...); },
      [](void* from, void* to) noexcept {
        ::new (to) F(std::move(*static_cast<F*>(from)));
        std::destroy_at(static_cast<F*>(from));
      },
      [](void* at) noexcept { std::destroy_at(static_cast<F*>(at)); }};
  template <class F>
  static constexpr Operations heap_operations{
      [](void* at, A&&... arguments) -> R { return (**static_cast<F**>(at))(std::forward<A>(arguments)...); },
      [](void* from, void* to) noexcept { ::new (to) F*(*static_cast<F**>(from)); },
      [](void* at) noexcept { delete *static_cast<F**>(at); }};

  void take(UniqueFunction& other) noexcept {
    if (other.operations_ == nullptr) return;
    other.operations_->move(other.storage_, storage_);
    operations_ = std::exchange(other.operations_, nullptr);
  }

  alignas(std::max_align_t) std::byte storage_[inline_size];
  const Operations* operations_ = nullptr;
};

}  // namespace cox
