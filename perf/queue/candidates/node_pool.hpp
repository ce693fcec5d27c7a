#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace cox::perf {

/// What one producer thread owns of a lane with nodes: free nodes, and those that the consumer sent back.
class NodePool {
 public:
  struct Node {
    std::atomic<Node*> next{nullptr};
    void (*run)(Node*) = nullptr;  // runs and destroys the closure behind the node
    NodePool* owner = nullptr;
    std::size_t kind = 0;
  };

  static constexpr std::size_t sizes[] = {64, 192, 4096 + 64};  // bytes of a node with its closure
  static constexpr std::size_t kinds = 3;

  NodePool() = default;
  NodePool(const NodePool&) = delete;
  NodePool& operator=(const NodePool&) = delete;
  ~NodePool() {
    for (Shelf& shelf : shelves_) {
      destroy(shelf.free);
      destroy(shelf.returned.load(std::memory_order_acquire));
      destroy(shelf.chain);
    }
  }

  static constexpr std::size_t kind_for(std::size_t bytes) {
    std::size_t kind = 0;
    while (kind < kinds && sizes[kind] < bytes) ++kind;
    return kind;
  }

  /// Owner thread: a node of this kind.
  Node* allocate(std::size_t kind) {
    Shelf& shelf = shelves_[kind];
    if (shelf.free == nullptr) {
      shelf.free = shelf.returned.exchange(nullptr, std::memory_order_acquire);  // partner: send_back
    }
    Node* node = shelf.free;
    if (node == nullptr) [[unlikely]] {
      node = new (::operator new(sizes[kind], std::align_val_t{64})) Node;
      node->owner = this;
      node->kind = kind;
      return node;
    }
    shelf.free = node->next.load(std::memory_order_relaxed);
    return node;
  }

  /// Consumer: gives a node back; it travels with the next full chain.
  void recycle(Node* node) {
    Shelf& shelf = shelves_[node->kind];
    node->next.store(shelf.chain, std::memory_order_relaxed);
    if (shelf.chain == nullptr) shelf.chain_end = node;
    shelf.chain = node;
    if (++shelf.chain_length == 32) send_back(shelf);
  }

 private:
  struct Shelf {
    alignas(64) Node* free = nullptr;   // owner's line
    alignas(64) Node* chain = nullptr;  // consumer's line
    Node* chain_end = nullptr;
    std::size_t chain_length = 0;
    alignas(64) std::atomic<Node*> returned{nullptr};  // both
  };

  static void send_back(Shelf& shelf) {
    Node* behind = shelf.returned.load(std::memory_order_relaxed);
    do {
      shelf.chain_end->next.store(behind, std::memory_order_relaxed);
    } while (!shelf.returned.compare_exchange_weak(behind, shelf.chain, std::memory_order_release,
                                                   std::memory_order_relaxed));
    shelf.chain = nullptr;
    shelf.chain_length = 0;
  }

  static void destroy(Node* node) {
    while (node != nullptr) {
      Node* next = node->next.load(std::memory_order_relaxed);
      ::operator delete(node, std::align_val_t{64});
      node = next;
    }
  }

  Shelf shelves_[kinds];
};

}  // namespace cox::perf
