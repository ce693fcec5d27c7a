#pragma once

#include <model/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace train {

struct OptimizerOptions {
  float rate = 3e-3F;        ///< highest learning rate
  float last_rate = 3e-4F;   ///< learning rate at the last step
  std::size_t warm_up = 20;  ///< steps
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float decay = 0.1F;  ///< weight decay of matrices
  float clip = 1.0F;   ///< largest norm of all gradients together
};

/// How the devices share the work.
enum class Layout : std::uint8_t {
  Replicated,  ///< each device has the whole model; gradients are reduced
  Sharded,     ///< the same, but each device updates its share of the parameters
  Pipeline,    ///< each device has a part of the layers
};

/// The type of activations, their gradients, and what the kernels read of parameters. The parameters themselves, their
/// gradients and all sums are floats.
enum class Precision : std::uint8_t { Float32, Bfloat16 };

/// What outlives the process under `cox run`.
enum class Keep : std::uint8_t {
  No,
  InPlace,  ///< the state: an update works on it, and is torn if the process ends meanwhile
  Double,   ///< two copies of the state, into which each update is copied in turn
};

/// What goes wrong in a test.
enum class FaultKind : std::uint8_t {
  None,
  Kernel,    ///< a kernel throws; on a GPU: a launch is refused
  Memory,    ///< an allocation fails
  Thread,    ///< the client thread of a rank throws
  Shutdown,  ///< a device is shut down
  Missing,   ///< a rank does not submit its work
  Crash,     ///< the process is killed
  Random,    ///< any of the above, again and again
  Gpu,       ///< a kernel traps: the GPU is lost
  Diverge,   ///< the parameters of a replica change; no error, but the end of the training finds it
  Update,    ///< the process is killed between the update of kept memory and its commit
  Kill,      ///< the process is killed at a random time
  Trap,      ///< a kernel traps on a random GPU of the process at a random time
  Address,   ///< the same with an access to an invalid address
  Assert,    ///< the same with a failed assertion
};

/// Trap, Address or Assert.
[[nodiscard]] constexpr bool is_random_gpu_fault(FaultKind kind) {
  return kind == FaultKind::Trap || kind == FaultKind::Address || kind == FaultKind::Assert;
}

struct Options {
  std::uint16_t device_type = 0;  ///< of cox::DeviceId
  std::size_t devices = 2;        ///< number of devices, of all processes together: see join()
  std::size_t local_devices = 2;  ///< number of devices of this process
  std::size_t first_device = 0;   ///< index of the first one
  Precision precision = Precision::Float32;
  ModelShape shape;               ///< the vocabulary is 0 if it is that of the text
  std::size_t batch = 8;          ///< samples of a micro-batch on each device
  std::size_t micro_batches = 1;  ///< micro-batches of a step, whose gradients are accumulated
  std::size_t steps = 200;
  std::size_t seed = 1;
  OptimizerOptions optimizer;
  Layout layout = Layout::Replicated;
  bool captured = false;  ///< replay a graph of one step
  std::size_t bucket_bytes = std::size_t{1} << 20U;
  bool owned_buckets = true;  ///< each bucket is one allocation, of which the gradients are parts
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::size_t evaluation_windows = 48;  ///< at most

  std::filesystem::path checkpoints;  ///< folder; empty: none are written
  std::size_t checkpoint_every = 50;  ///< steps
  bool resume = false;
  std::size_t stop_after = 0;  ///< step; 0: do not stop before the last step
  std::size_t restarts = 3;    ///< after failures, in this process

  Keep keep = Keep::No;

  FaultKind fault = FaultKind::None;  ///< for tests
  /// The step. Random: mean number of steps between faults. Kill, Trap, Address, Assert: mean time, milliseconds.
  std::size_t fault_step = 0;
  std::string timeout;  ///< of collectives, as the setting collectives.timeout; empty: unchanged

  std::size_t log_every = 10;  ///< steps; 0: no progress lines
  std::filesystem::path losses_file;
  std::filesystem::path json_file;
  std::filesystem::path report_file;
};

/// The arguments contradict each other, or what is there. The program ends with exit code 2.
class WrongArguments : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A number of things: "1 device", "2 devices".
[[nodiscard]] std::string counted(std::size_t count, const char* one, const char* several);

/// Reads the command line. Prints help or an error and ends the process where that is what the arguments ask for.
[[nodiscard]] Options parse_options(int argc, const char* const* argv);

/// Checks what depends on the number of devices of all processes. Throws WrongArguments.
void check_devices(const Options& options);

/// Describes the options and the text that the values of a training run depend on, to the last digit; not how many
/// processes the devices belong to, on which they do not depend. A run may
/// continue only a checkpoint with the same description. Not described: whether there is cuBLASLt, and which version.
[[nodiscard]] std::string fingerprint(const Options& options, std::uint64_t text_checksum);

}  // namespace train
