// Launches that the driver is given together, over functions that stand in for the driver's.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

using cox::detail::Driver;
using cox::detail::LaunchBatch;
using cox::detail::LaunchGraphs;

namespace {

/// Of a kernel that takes two words, then a number of 32 bits.
constexpr std::array<std::uint32_t, 2> parameter_begins{0, 2};

/// A kernel that has run.
struct Ran {
  CUfunction function;
  std::uint64_t first;
  std::uint32_t second;
  unsigned blocks;
  bool operator==(const Ran&) const = default;
};

/// What the driver's functions do here. One test at a time.
struct FakeDriver {
  struct Node {
    Ran kernel;
    int priority = 0;
  };
  struct Graph {
    std::vector<Node*> nodes;
    bool prioritised = false;
    bool instantiated = false;
  };

  std::vector<Ran> ran;
  std::deque<Node> nodes;
  std::deque<Graph> graphs;
  int single_launches = 0;
  int graph_launches = 0;
  int changes = 0;
  int instances = 0;
  int alive = 0;     // graphs, and what is made of them
  int calls = 0;     // so far
  int fails_at = 0;  // the call of that number; 0: none

  [[nodiscard]] CUresult next() noexcept { return ++calls == fails_at ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS; }
  static FakeDriver* now;
};
FakeDriver* FakeDriver::now = nullptr;

/// That with which the graphs are made.
const auto empty_kernel = reinterpret_cast<CUfunction>(std::uintptr_t{99});

Ran ran_of(CUfunction function, unsigned blocks, void** arguments) {
  if (function == empty_kernel) return {function, 0, 0, blocks};
  return {function, *static_cast<std::uint64_t*>(arguments[0]), *static_cast<std::uint32_t*>(arguments[1]), blocks};
}

CUresult graph_create(CUgraph* graph, unsigned) {
  if (const CUresult result = FakeDriver::now->next(); result != CUDA_SUCCESS) return result;
  ++FakeDriver::now->alive;
  *graph = reinterpret_cast<CUgraph>(&FakeDriver::now->graphs.emplace_back());
  return CUDA_SUCCESS;
}
CUresult graph_add_kernel(CUgraphNode* node, CUgraph graph, const CUgraphNode* behind, std::size_t count,
                          const CUDA_KERNEL_NODE_PARAMS* parameters) {
  if (const CUresult result = FakeDriver::now->next(); result != CUDA_SUCCESS) return result;
  auto& nodes = reinterpret_cast<FakeDriver::Graph*>(graph)->nodes;
  REQUIRE(count == (nodes.empty() ? 0 : 1));
  if (count == 1) REQUIRE(*behind == reinterpret_cast<CUgraphNode>(nodes.back()));  // a chain
  nodes.push_back(&FakeDriver::now->nodes.emplace_back());
  nodes.back()->kernel = ran_of(parameters->func, parameters->gridDimX, parameters->kernelParams);
  *node = reinterpret_cast<CUgraphNode>(nodes.back());
  return CUDA_SUCCESS;
}
CUresult graph_set_attribute(CUgraphNode node, CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue* value) {
  if (const CUresult result = FakeDriver::now->next(); result != CUDA_SUCCESS) return result;
  REQUIRE(attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY);
  reinterpret_cast<FakeDriver::Node*>(node)->priority = value->priority;
  return CUDA_SUCCESS;
}
CUresult graph_instantiate(CUgraphExec* made, CUgraph graph, unsigned long long flags) {
  if (const CUresult result = FakeDriver::now->next(); result != CUDA_SUCCESS) return result;
  ++FakeDriver::now->alive;
  ++FakeDriver::now->instances;
  auto* const of = reinterpret_cast<FakeDriver::Graph*>(graph);
  of->prioritised = flags == CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  of->instantiated = true;
  *made = reinterpret_cast<CUgraphExec>(of);
  return CUDA_SUCCESS;
}
CUresult graph_change_kernel(CUgraphExec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  if (const CUresult result = FakeDriver::now->next(); result != CUDA_SUCCESS) return result;
  ++FakeDriver::now->changes;
  reinterpret_cast<FakeDriver::Node*>(node)->kernel =
      ran_of(parameters->func, parameters->gridDimX, parameters->kernelParams);
  return CUDA_SUCCESS;
}
CUresult graph_launch(CUgraphExec graph, CUstream) {
  if (const CUresult result = FakeDriver::now->next(); result != CUDA_SUCCESS) return result;
  ++FakeDriver::now->graph_launches;
  for (const auto* const node : reinterpret_cast<FakeDriver::Graph*>(graph)->nodes)
    FakeDriver::now->ran.push_back(node->kernel);
  return CUDA_SUCCESS;
}
CUresult launch(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
  if (const CUresult result = FakeDriver::now->next(); result != CUDA_SUCCESS) return result;
  ++FakeDriver::now->single_launches;
  FakeDriver::now->ran.push_back(ran_of(function, config->gridDimX, arguments));
  return CUDA_SUCCESS;
}
CUresult give_up_graph(CUgraph) {
  --FakeDriver::now->alive;
  return CUDA_SUCCESS;
}
CUresult give_up_exec(CUgraphExec) {
  --FakeDriver::now->alive;
  return CUDA_SUCCESS;
}

/// A batch, and what is to come of it.
class Bench {
 public:
  Bench() {
    FakeDriver::now = &fake;
    driver_.graph_create = graph_create;
    driver_.graph_add_kernel = graph_add_kernel;
    driver_.graph_set_attribute = graph_set_attribute;
    driver_.graph_instantiate = graph_instantiate;
    driver_.graph_change_kernel = graph_change_kernel;
    driver_.graph_launch = graph_launch;
    driver_.graph_destroy = give_up_graph;
    driver_.graph_exec_destroy = give_up_exec;
    driver_.launch = launch;
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() { FakeDriver::now = nullptr; }

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  void make_graphs(LaunchBatch& batch, int priority = 0) const {
    batch.make_graphs(std::make_shared<LaunchGraphs>(driver_, empty_kernel, priority), LaunchBatch::max_kernels);
  }

  /// The next kernel: no two are alike. The values are gone when it is launched.
  void add(LaunchBatch& batch, std::uintptr_t function = 1) {
    const std::uint64_t number = ++added_;
    const auto second = static_cast<std::uint32_t>(7 * number);
    const std::array<std::uint64_t, 3> words{number, number, second};
    const auto blocks = static_cast<unsigned>(number % 5 + 1);
    const Ran kernel{reinterpret_cast<CUfunction>(function), number, second, blocks};
    batch.add({.function = kernel.function,
               .grid = {blocks, 1, 1},
               .block = {32, 1, 1},
               .words = words,
               .parameter_begins = parameter_begins},
              [this, kernel](const LaunchBatch::Outcome& outcome) {
                ++told;
                if (outcome.result == CUDA_SUCCESS) expected.push_back(kernel);
              });
  }

  FakeDriver fake;
  std::vector<Ran> expected;  // as the driver has said
  int told = 0;

 private:
  Driver driver_;
  std::uint64_t added_ = 0;
};

}  // namespace

TEST_CASE("A batch of any size runs once, in its order, with what each kernel was given") {
  Bench bench;
  {
    LaunchBatch batch(bench.driver());
    bench.make_graphs(batch);
    int all = 0;
    for (int round = 0; round < 3; ++round)
      for (int count = 1; count <= static_cast<int>(LaunchBatch::max_kernels); ++count) {
        for (int i = 0; i < count; ++i) bench.add(batch);
        REQUIRE(batch.size() == static_cast<std::size_t>(count));
        batch.flush(nullptr);
        REQUIRE(batch.empty());
        all += count;
        REQUIRE(bench.told == all);
      }
    CHECK(bench.expected.size() == static_cast<std::size_t>(all));
    CHECK(bench.fake.ran == bench.expected);
    CHECK(bench.fake.single_launches == 1);  // the very first
    CHECK(bench.fake.graphs.size() == 5);    // of 1, 2, 4, 8 and 16, made before
  }
  CHECK(bench.fake.alive == 0);
}

TEST_CASE("A kernel by itself is a graph only where it is the one that was by itself before") {
  Bench bench;
  LaunchBatch batch(bench.driver());
  bench.make_graphs(batch);
  for (const std::uintptr_t function : {1U, 2U, 1U, 2U}) {
    bench.add(batch, function);
    batch.flush(nullptr);
  }
  CHECK(bench.fake.single_launches == 4);
  CHECK(bench.fake.graph_launches == 0);
  for (int i = 0; i < 3; ++i) {
    bench.add(batch, 2);
    batch.flush(nullptr);
  }
  CHECK(bench.fake.single_launches == 4);
  CHECK(bench.fake.graph_launches == 3);
  CHECK(bench.fake.changes == 3);
  CHECK(bench.fake.ran == bench.expected);
}

TEST_CASE("Kernels of a stream with a priority have it in the graph, too") {
  Bench bench;
  LaunchBatch batch(bench.driver());
  bench.make_graphs(batch, -5);
  for (int i = 0; i < 4; ++i) bench.add(batch);
  batch.flush(nullptr);
  CHECK(bench.fake.graph_launches == 1);
  for (const auto& graph : bench.fake.graphs) CHECK(graph.prioritised);
  for (const auto& node : bench.fake.nodes) CHECK(node.priority == -5);
}

TEST_CASE("Without graphs each kernel is launched by itself") {
  Bench bench;
  LaunchBatch batch(bench.driver());
  for (int i = 0; i < 11; ++i) bench.add(batch);
  batch.flush(nullptr);
  CHECK(bench.fake.graphs.empty());
  CHECK(bench.fake.single_launches == 11);
  CHECK(bench.fake.ran == bench.expected);
}

TEST_CASE("A batch has graphs for as many kernels as it may have, and none for kernels with more arguments") {
  Bench bench;
  LaunchBatch batch(bench.driver());
  batch.make_graphs(std::make_shared<LaunchGraphs>(bench.driver(), empty_kernel, 0), 5);
  CHECK(bench.fake.instances == 3);  // of 1, 2 and 4
  const std::vector<std::uint64_t> words(LaunchGraphs::max_argument_bytes / sizeof(std::uint64_t) + 1, 7);
  for (int i = 0; i < 2; ++i)
    batch.add({.function = reinterpret_cast<CUfunction>(std::uintptr_t{1}),
               .words = words,
               .parameter_begins = parameter_begins},
              [](const LaunchBatch::Outcome&) {});
  batch.flush(nullptr);
  CHECK(bench.fake.graph_launches == 0);
  CHECK(bench.fake.single_launches == 2);
}

TEST_CASE("Whichever call of the driver fails, no kernel runs twice or out of order, and all are told") {
  for (int fails_at = 1;; ++fails_at) {
    Bench bench;
    bench.fake.fails_at = fails_at;
    int added = 0;
    {
      LaunchBatch batch(bench.driver());
      try {
        bench.make_graphs(batch, -1);
      } catch (const cox::CudaError&) {  // the kernels are launched by themselves
      }
      for (const int count : {1, 2, 1, 7, 16, 3, 16, 1, 2}) {
        for (int i = 0; i < count; ++i) bench.add(batch, i % 3 == 0 ? 1 : 2);
        batch.flush(nullptr);
        added += count;
      }
    }
    INFO("call " << fails_at << " of " << bench.fake.calls);
    REQUIRE(bench.told == added);
    REQUIRE(bench.fake.ran == bench.expected);
    REQUIRE(bench.fake.alive == 0);
    if (fails_at > bench.fake.calls) {
      CHECK(bench.expected.size() == static_cast<std::size_t>(added));
      break;
    }
    // A launch by itself; all else that can fail has another way.
    REQUIRE(bench.expected.size() + 1 >= static_cast<std::size_t>(added));
  }
}

TEST_CASE("Who is told of a launch may add the next one") {
  Bench bench;
  LaunchBatch batch(bench.driver());
  const std::array<std::uint64_t, 3> words{5, 5, 6};
  batch.add({.function = reinterpret_cast<CUfunction>(std::uintptr_t{1}),
             .words = words,
             .parameter_begins = parameter_begins},
            [&](const LaunchBatch::Outcome&) { bench.add(batch); });
  batch.flush(nullptr);
  CHECK(batch.size() == 1);
  CHECK(bench.fake.ran.size() == 1);
  batch.flush(nullptr);
  REQUIRE(bench.fake.ran.size() == 2);
  CHECK(bench.fake.ran.back() == bench.expected.back());
}
