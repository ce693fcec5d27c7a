#include <engine/gradient_exchange.hpp>

#include <coxswain/collectives/communicator/bucket_plan.hpp>
#include <coxswain/collectives/communicator/gradient_buckets.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/collective_group.hpp>

#include <functional>
#include <utility>

namespace train {
namespace {

std::vector<cox::Gradient> declared(const ParameterList& list) {
  std::vector<cox::Gradient> gradients;
  for (const Parameter& parameter : list.all()) gradients.push_back({parameter.elements * sizeof(float)});
  return gradients;
}

cox::BucketOptions bucket_options(const Options& options, bool own_memory) {
  return {
      .bucket_bytes = options.bucket_bytes, .first_bucket_bytes = options.bucket_bytes / 4, .own_memory = own_memory};
}

template <class Backend>
std::vector<Slice> whole_parameters(const Model<Backend>& model) {
  std::vector<Slice> slices;
  for (std::size_t i = 0; i < model.list().size(); ++i)
    slices.push_back({model.parameters()[i], model.gradients()[i],
                      model.has_copies() ? std::optional(model.weights()[i]) : std::nullopt, model.list()[i].elements,
                      model.list()[i].decays});
  return slices;
}

/// The stages of a pipeline have different parameters.
template <class Backend>
class NoExchange final : public GradientExchange {
 public:
  explicit NoExchange(Model<Backend>& model) {
    model.allocate_gradients();
    slices_ = whole_parameters(model);
  }

  void add(std::size_t /*index*/) override {}
  std::optional<cox::Future<void>> finish(bool /*capturing*/) override { return std::nullopt; }
  void updated() override {}
  [[nodiscard]] std::vector<Slice> slices() const override { return slices_; }

 private:
  std::vector<Slice> slices_;
};

/// The mean of the gradients of all replicas, by the buckets of the library.
template <class Backend>
class BucketExchange final : public GradientExchange {
 public:
  BucketExchange(const Device<Backend>& device, Model<Backend>& model, const cox::CommunicationId& ranks,
                 const Options& options)
      : model_(model),
        own_memory_(options.owned_buckets),
        buckets_(device.client(), ranks, declared(model.list()), cox::ReduceOperation::Mean,
                 bucket_options(options, own_memory_)) {
    if (!own_memory_) {
      model.allocate_gradients();
      return;
    }
    std::vector<cox::Handle> gradients;
    for (std::size_t i = 0; i < model.list().size(); ++i) gradients.push_back(buckets_.gradient(i));
    model.set_gradients(std::move(gradients));
  }

  void add(std::size_t index) override {
    if (own_memory_) {
      buckets_.add(index);
    } else {
      buckets_.add(index, model_.gradients()[index]);
    }
  }
  std::optional<cox::Future<void>> finish(bool /*capturing*/) override { return buckets_.finish(); }
  void updated() override {}
  [[nodiscard]] std::vector<Slice> slices() const override { return whole_parameters(model_); }
  [[nodiscard]] std::vector<GradientBlock> blocks() const override {
    std::vector<GradientBlock> blocks;
    for (std::size_t bucket = 0; own_memory_ && bucket < buckets_.plan().buckets(); ++bucket)
      blocks.push_back({buckets_.buffer(bucket), buckets_.plan().bucket_size(bucket) / sizeof(float)});
    return blocks;
  }

 private:
  const Model<Backend>& model_;
  const bool own_memory_;
  cox::GradientBuckets<typename Backend::Client> buckets_;
};

/// Submits the operations of a bucket when all its gradients have been added. A collective does not hold up the stream
/// on which it is submitted, so these overlap with the rest of the backward pass as GradientBuckets do. Can be
/// captured.
template <class Backend>
class PlannedExchange : public GradientExchange {
 public:
  PlannedExchange(const Device<Backend>& device, Model<Backend>& model, const cox::CommunicationId& ranks,
                  const Options& options, bool own_memory)
      : client_(device.client()),
        model_(model),
        ranks_(ranks),
        plan_(declared(model.list()), bucket_options(options, own_memory)),
        added_(plan_.buckets()) {}

  void add(std::size_t index) override {
    const std::size_t bucket = plan_.bucket_of(index);
    if (++added_[bucket] < plan_.members(bucket).size()) return;
    added_[bucket] = 0;
    exchange(bucket);
  }
  std::optional<cox::Future<void>> finish(bool capturing) override {
    if (capturing) return std::nullopt;
    return client_.sync();
  }
  void updated() override {}

 protected:
  virtual void exchange(std::size_t bucket) = 0;

  [[nodiscard]] const typename Backend::Client& client() const { return client_; }
  [[nodiscard]] Model<Backend>& model() const { return model_; }
  [[nodiscard]] const cox::CommunicationId& ranks() const { return ranks_; }
  [[nodiscard]] const cox::BucketPlan& plan() const { return plan_; }

 private:
  typename Backend::Client client_;
  Model<Backend>& model_;
  cox::CommunicationId ranks_;
  cox::BucketPlan plan_;
  std::vector<std::size_t> added_;  // by bucket: number of gradients added in this step
};

/// What BucketExchange does, for a captured step: the same operations on the same buckets.
template <class Backend>
class ReduceExchange final : public PlannedExchange<Backend> {
 public:
  ReduceExchange(const Device<Backend>& device, Model<Backend>& model, const cox::CommunicationId& ranks,
                 const Options& options)
      : PlannedExchange<Backend>(device, model, ranks, options, options.owned_buckets) {
    if (!options.owned_buckets) {
      model.allocate_gradients();
      return;
    }
    const cox::BucketPlan& plan = this->plan();
    this->client().memory_persistent_allocation([&] {
      for (std::size_t bucket = 0; bucket < plan.buckets(); ++bucket)
        buffers_.push_back(this->client().create(cox::Bytes::zeroed(plan.bucket_size(bucket))));
    });
    std::vector<cox::Handle> gradients;
    for (std::size_t i = 0; i < model.list().size(); ++i) {
      const cox::Handle& buffer = buffers_[plan.bucket_of(i)];
      const std::size_t begin = plan.offset_of(i);
      const std::size_t bytes = model.list()[i].elements * sizeof(float);
      gradients.push_back(buffer.offset_start(begin).offset_end(buffer.size() - begin - bytes));
    }
    model.set_gradients(std::move(gradients));
  }
  [[nodiscard]] std::vector<Slice> slices() const override { return whole_parameters(this->model()); }
  [[nodiscard]] std::vector<GradientBlock> blocks() const override {
    std::vector<GradientBlock> blocks;
    for (const cox::Handle& buffer : buffers_) blocks.push_back({buffer, buffer.size() / sizeof(float)});
    return blocks;
  }

 private:
  void exchange(std::size_t bucket) override {
    constexpr auto mean = cox::ReduceOperation::Mean;
    if (!buffers_.empty()) {
      const cox::Handle& buffer = buffers_[bucket];
      this->client().all_reduce(buffer, buffer, cox::ElementType::F32, this->ranks(), mean);
      return;
    }
    this->client().collective_group(this->ranks(), [&](cox::CollectiveGroup& group) {
      for (const std::size_t member : this->plan().members(bucket)) {
        const cox::Handle& gradient = this->model().gradients()[member];
        group.all_reduce(gradient, gradient, cox::ElementType::F32, mean);
      }
    });
  }

  std::vector<cox::Handle> buffers_;  // by bucket; none if each gradient is an allocation
};

/// Each rank gets the mean of its share of each gradient, updates this share of the parameter, and gets the shares of
/// the other ranks. Both operations work in place. Every parameter is a multiple of the model's width, which is a
/// multiple of the number of ranks.
template <class Backend>
class ShardedExchange final : public PlannedExchange<Backend> {
 public:
  ShardedExchange(const Device<Backend>& device, Model<Backend>& model, const cox::CommunicationId& ranks,
                  const Options& options)
      : PlannedExchange<Backend>(device, model, ranks, options, false) {
    model.allocate_gradients();
    const std::size_t count = ranks.world_size();
    const std::size_t rank = ranks.rank_of(device.client().device_id());
    for (const Slice& whole : whole_parameters(model)) {
      const std::size_t bytes = whole.elements / count * sizeof(float);
      const auto own = [&](const cox::Handle& memory) {
        return memory.offset_start(rank * bytes).offset_end((count - rank - 1) * bytes);
      };
      shards_.push_back({own(whole.parameter), own(whole.gradient), {}, whole.elements / count, whole.decays});
    }
  }

  void updated() override {
    this->client().collective_group(this->ranks(), [&](cox::CollectiveGroup& group) {
      for (std::size_t i = 0; i < shards_.size(); ++i)
        group.all_gather(shards_[i].parameter, this->model().parameters()[i], cox::ElementType::F32);
    });
    for (std::size_t i = 0; i < shards_.size(); ++i) this->model().round(i);
  }
  [[nodiscard]] std::vector<Slice> slices() const override { return shards_; }

 private:
  void exchange(std::size_t bucket) override {
    this->client().collective_group(this->ranks(), [&](cox::CollectiveGroup& group) {
      for (const std::size_t member : this->plan().members(bucket))
        group.reduce_scatter(this->model().gradients()[member], shards_[member].gradient, cox::ElementType::F32,
                             cox::ReduceOperation::Mean);
    });
  }

  std::vector<Slice> shards_;
};

}  // namespace

template <class Backend>
std::unique_ptr<GradientExchange> make_gradient_exchange(const Device<Backend>& device, Model<Backend>& model,
                                                         const cox::CommunicationId& ranks, const Options& options) {
  if (options.layout == Layout::Pipeline) return std::make_unique<NoExchange<Backend>>(model);
  if (options.layout == Layout::Sharded)
    return std::make_unique<ShardedExchange<Backend>>(device, model, ranks, options);
  if (options.captured) return std::make_unique<ReduceExchange<Backend>>(device, model, ranks, options);
  return std::make_unique<BucketExchange<Backend>>(device, model, ranks, options);
}

template std::unique_ptr<GradientExchange> make_gradient_exchange(const Device<HostBackend>&, Model<HostBackend>&,
                                                                  const cox::CommunicationId&, const Options&);
#ifdef TRAIN_CUDA
template std::unique_ptr<GradientExchange> make_gradient_exchange(const Device<CudaBackend>&, Model<CudaBackend>&,
                                                                  const cox::CommunicationId&, const Options&);
#endif

}  // namespace train
