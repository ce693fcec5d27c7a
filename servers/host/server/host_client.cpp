#include <coxswain/servers/host/server/host_server.hpp>

namespace cox {

template class ComputeClient<HostServer>;

}  // namespace cox
