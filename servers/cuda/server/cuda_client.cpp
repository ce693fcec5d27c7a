#include <coxswain/servers/cuda/server/cuda_server.hpp>

namespace cox {

template class ComputeClient<CudaServer>;

}  // namespace cox
