#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace cox::perf {

/// A movable closure of `Bytes` bytes: two function pointers in one table, the captures inside if they fit, else on the
/// heap. What a good engineer puts into somebody else's queue.
template <std::size_t Bytes>
class Closure {
 public:
  Closure() = default;
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, Closure>)
  explicit Closure(F&& f) {
    using G = std::decay_t<F>;
    if constexpr (fits<G>) {
      ::new (storage_) G(std::forward<F>(f));
      table_ = &inside<G>;
    } else {
      ::new (storage_) G*(new G(std::forward<F>(f)));
      table_ = &outside<G>;
    }
  }
  Closure(Closure&& other) noexcept { take(other); }
  Closure& operator=(Closure&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Closure() { reset(); }

  /// Runs the closure and destroys it.
  void run() {
    const Table* table = std::exchange(table_, nullptr);
    table->run(storage_);
  }

 private:
  struct Table {
    void (*run)(void*);                  // and destroy
    void (*move)(void* to, void* from);  // and destroy the source; null: copy the bytes
    void (*destroy)(void*);
  };

  template <class G>
  static constexpr bool fits = sizeof(G) <= Bytes - sizeof(void*) && alignof(G) <= alignof(void*);

  template <class G>
  static void relocate(void* to, void* from) {
    G& g = *static_cast<G*>(from);
    ::new (to) G(std::move(g));
    g.~G();
  }

  template <class G>
  static constexpr Table inside{[](void* at) {
                                  G& g = *static_cast<G*>(at);
                                  g();
                                  g.~G();
                                },
                                std::is_trivially_copyable_v<G> ? nullptr : &relocate<G>,
                                [](void* at) { static_cast<G*>(at)->~G(); }};

  template <class G>
  static constexpr Table outside{[](void* at) {
                                   const std::unique_ptr<G> g(*static_cast<G**>(at));
                                   (*g)();
                                 },
                                 [](void* to, void* from) { ::new (to) G*(*static_cast<G**>(from)); },
                                 [](void* at) { delete *static_cast<G**>(at); }};

  void take(Closure& other) noexcept {
    table_ = std::exchange(other.table_, nullptr);
    if (table_ == nullptr) return;
    if (table_->move == nullptr) {
      std::memcpy(storage_, other.storage_, sizeof storage_);
    } else {
      table_->move(storage_, other.storage_);
    }
  }
  void reset() noexcept {
    if (table_ != nullptr) std::exchange(table_, nullptr)->destroy(storage_);
  }

  const Table* table_ = nullptr;
  alignas(void*) std::byte storage_[Bytes - sizeof(void*)];
};

static_assert(sizeof(Closure<64>) == 64);

}  // namespace cox::perf
