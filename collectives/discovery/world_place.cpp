#include <coxswain/collectives/discovery/world_place.hpp>

#include <coxswain/collectives/store/folder_store.hpp>
#include <coxswain/collectives/store/pmix_session.hpp>
#include <coxswain/collectives/store/pmix_store.hpp>
#include <coxswain/collectives/store/tcp_store.hpp>
#include <coxswain/collectives/store/torch_store.hpp>

namespace cox {
std::unique_ptr<Store> WorldPlace::open_store(Store::Deadline deadline) const {
  switch (rendezvous.kind) {
    case Rendezvous::Kind::None:
    case Rendezvous::Kind::Leader: return nullptr;
    case Rendezvous::Kind::Tcp:
      return std::make_unique<detail::TcpStore>(detail::TcpStoreOptions{.host = rendezvous.host,
                                                                        .port = rendezvous.port,
                                                                        .process = process,
                                                                        .processes = processes,
                                                                        .run = run,
                                                                        .restart = restart,
                                                                        .token = token},
                                                deadline);
    case Rendezvous::Kind::Folder:
      return std::make_unique<detail::FolderStore>(detail::FolderStoreOptions{
          .folder = rendezvous.folder, .process = process, .processes = processes, .run = run, .restart = restart});
    case Rendezvous::Kind::TorchStore:
      return std::make_unique<detail::TorchStore>(
          detail::TorchStoreOptions{.host = rendezvous.host, .port = rendezvous.port, .run = run, .restart = restart},
          deadline);
    case Rendezvous::Kind::Pmix:
      return std::make_unique<detail::PmixStore>(pmix != nullptr ? pmix : detail::PmixSession::open(), run, restart);
  }
  return nullptr;
}

}  // namespace cox
