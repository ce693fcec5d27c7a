#pragma once

#include <data/text.hpp>
#include <engine/backends.hpp>
#include <model/activations.hpp>
#include <model/shape.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace train {

/// Parameters, gradients and activations of one stage on one device. All calls queue work on the stream of the calling
/// thread and return; none waits for the device, except on GPUs the first product of each shape (see MatrixProducts).
/// To be used by one thread.
template <class Backend>
class Model {
 public:
  /// Called when the last kernel that computes the gradient of parameter `index` has been queued.
  using GradientReady = std::function<void(std::size_t index)>;

  /// Allocates all memory but that of the gradients. The parameters are undefined until set_parameter() was called for
  /// each. `samples`: of a micro-batch. `batches`: number of micro-batches of a step. `slots`: number of those whose
  /// activations are kept at the same time. `parameters`: their memory, in the order of list(); none: new memory.
  Model(Device<Backend> device, const ModelShape& shape, const Stage& stage, std::size_t samples, std::size_t batches,
        std::size_t slots, std::vector<cox::Handle> parameters = {});

  [[nodiscard]] const ModelShape& shape() const { return shape_; }
  [[nodiscard]] const Stage& stage() const { return stage_; }
  [[nodiscard]] const ParameterList& list() const { return list_; }
  /// The parameters, in floats.
  [[nodiscard]] const std::vector<cox::Handle>& parameters() const { return parameters_; }
  /// The parameters as the kernels read them: the same memory, or copies rounded to the type of activations.
  [[nodiscard]] const std::vector<cox::Handle>& weights() const { return weights_; }
  [[nodiscard]] bool has_copies() const { return device_.precision() != Precision::Float32; }
  /// Sets the memory of the gradients, in the order of list(). To be called once, before backward().
  void set_gradients(std::vector<cox::Handle> gradients) { gradients_ = std::move(gradients); }
  /// The same, with an allocation for each gradient.
  void allocate_gradients();
  /// The gradients, in floats.
  [[nodiscard]] const std::vector<cox::Handle>& gradients() const { return gradients_; }
  /// Rows of a micro-batch: samples * context.
  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] const Activations& slot(std::size_t slot) const { return slots_[slot]; }
  [[nodiscard]] const Scratch& scratch() const { return scratch_; }
  /// The output of the stage's last layer, which the next stage of a pipeline takes as its input.
  [[nodiscard]] const cox::Handle& output(std::size_t slot) const;

  /// Uploads the values of a parameter, floats.
  void set_parameter(std::size_t index, cox::Bytes values) {
    device_.client().write(parameters_[index], std::move(values));
    if (has_copies()) round(index);
  }
  /// Overwrites the rounded copy of a parameter, if there are copies.
  void round(std::size_t index);
  /// Uploads what the stage needs of micro-batch number `batch`: tokens for the embedding, targets for the loss.
  void set_batch(std::size_t batch, const TokenBatch& text);

  /// Computes the stage from the tokens or slot.input to its output, and to the logits if the stage predicts.
  void forward(std::size_t slot, std::size_t batch);
  /// Computes the losses of the rows, and the gradient of the logits times `scale`. For a stage that predicts.
  void loss(std::size_t slot, std::size_t batch, float scale);
  /// Computes the gradients. Begins at the gradient of the logits, or at scratch().d_residual, the gradient of the
  /// stage's output; leaves the gradient of the stage's input in scratch().d_residual. `accumulate`: adds to the
  /// gradients of an earlier micro-batch instead of overwriting them.
  void backward(std::size_t slot, std::size_t batch, bool accumulate, const GradientReady& ready);

 private:
  void layer_forward(const Activations& slot, std::size_t layer);
  void layer_backward(const Activations& slot, std::size_t layer, bool accumulate, const GradientReady& ready);

  void norm_forward(const cox::Handle& out, const cox::Handle& mean, const cox::Handle& rstd, const cox::Handle& x,
                    std::size_t gain, std::size_t bias);
  void norm_backward(const cox::Handle& d_out, const cox::Handle& x, const cox::Handle& mean, const cox::Handle& rstd,
                     std::size_t gain, std::size_t bias, bool add_to_residual, bool accumulate,
                     const GradientReady& ready);
  // out = x weight + bias, where weight is [in, out].
  void linear_forward(const cox::Handle& out, const cox::Handle& x, std::size_t weight, std::size_t bias,
                      std::size_t from, std::size_t to);
  void linear_backward(const cox::Handle& d_x, const cox::Handle& d_out, const cox::Handle& x, std::size_t weight,
                       std::size_t bias, std::size_t from, std::size_t to, bool accumulate, const GradientReady& ready);
  void sum_chunks(std::size_t gradient, std::size_t stride, std::size_t first, std::size_t width, bool accumulate);
  [[nodiscard]] const cox::Handle& input_of(const Activations& slot, std::size_t layer) const {
    return layer == 0 ? slot.input : slot.layers[layer - 1].output;
  }

  Device<Backend> device_;
  ModelShape shape_;
  Stage stage_;
  std::size_t samples_;
  std::size_t rows_;
  AttentionShape attention_;
  ParameterList list_;
  std::size_t chunks_;  // of rows, whose sums are computed at the same time
  std::size_t runs_;    // largest number of different tokens in a micro-batch
  std::vector<cox::Handle> parameters_;
  std::vector<cox::Handle> weights_;
  std::vector<cox::Handle> gradients_;
  std::vector<BatchMemory> batches_;
  std::vector<Activations> slots_;
  Scratch scratch_;
};

}  // namespace train
