# The packages we build on. Each is an imported target; a missing one is an error that names the Debian package, or is
# downloaded (headers only) when COX_FETCH_DEPENDENCIES is on. An installed coxswain finds the packages itself.

include(FetchContent)

if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)  # Boost's own package file instead of CMake's module
endif()

# cox_fetch_headers(name target include_directory FetchContent arguments...)
# Downloads `name` and offers its headers as `target`; `include_directory` is relative to the download.
function(cox_fetch_headers name target include_directory)
  FetchContent_Declare(${name} ${ARGN} SOURCE_SUBDIR none)  # there is no such folder: nothing of theirs is built
  FetchContent_MakeAvailable(${name})
  FetchContent_GetProperties(${name})
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} INTERFACE "${${name}_SOURCE_DIR}/${include_directory}")
endfunction()

macro(cox_missing package debian_package)
  if(NOT COX_FETCH_DEPENDENCIES)
    message(FATAL_ERROR "${package} is missing: install ${debian_package}, or set COX_FETCH_DEPENDENCIES=ON")
  endif()
  message(STATUS "${package} is missing here and is downloaded")
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

find_package(Boost 1.81 QUIET)
if(NOT TARGET Boost::headers)
  cox_missing("Boost 1.81" "libboost1.81-dev or libboost-dev")
  cox_fetch_headers(boost Boost::headers "" URL
    https://archives.boost.io/release/1.83.0/source/boost_1_83_0.tar.gz
    URL_HASH SHA256=c0685b68dd44cc46574cce86c4e17c0f611b15e195be9848dfd0769a0a207628)
endif()

find_package(ConcurrentQueue QUIET)
if(NOT TARGET concurrentqueue::concurrentqueue)
  cox_missing(concurrentqueue.h libconcurrentqueue-dev)
  cox_fetch_headers(concurrentqueue concurrentqueue::concurrentqueue ""
    GIT_REPOSITORY https://github.com/cameron314/concurrentqueue.git GIT_TAG v1.0.4 GIT_SHALLOW ON)
endif()

find_package(fmt 8 QUIET)
if(NOT TARGET fmt::fmt)
  cox_missing(fmt libfmt-dev)
  cox_fetch_headers(fmt fmt::fmt include
    GIT_REPOSITORY https://github.com/fmtlib/fmt.git GIT_TAG 9.1.0 GIT_SHALLOW ON)
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
endif()

find_package(spdlog 1.9 QUIET)
if(NOT TARGET spdlog::spdlog)
  cox_missing(spdlog libspdlog-dev)
  cox_fetch_headers(spdlog spdlog::spdlog include
    GIT_REPOSITORY https://github.com/gabime/spdlog.git GIT_TAG v1.11.0 GIT_SHALLOW ON)
  target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
  target_link_libraries(spdlog::spdlog INTERFACE fmt::fmt)
endif()

# Headers only: the packages' own targets link the library that Debian builds of them.
find_path(COX_TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h DOC "Folder of toml++/toml.h (Debian package libtomlplusplus-dev)")
mark_as_advanced(COX_TOMLPLUSPLUS_INCLUDE_DIR)
if(COX_TOMLPLUSPLUS_INCLUDE_DIR)
  add_library(cox_tomlplusplus INTERFACE IMPORTED GLOBAL)
  target_include_directories(cox_tomlplusplus INTERFACE "${COX_TOMLPLUSPLUS_INCLUDE_DIR}")
else()
  cox_missing(toml++ libtomlplusplus-dev)
  cox_fetch_headers(tomlplusplus cox_tomlplusplus include
    GIT_REPOSITORY https://github.com/marzer/tomlplusplus.git GIT_TAG v3.3.0 GIT_SHALLOW ON)
endif()
target_compile_definitions(cox_tomlplusplus INTERFACE TOML_HEADER_ONLY=1)

# Where there is no library, the two sources that we need are compiled into our own. Where programs are to carry what they
# need and there is only a shared library, as in Debian, it is put beside them.
find_package(PrometheusCore QUIET)
if(TARGET PrometheusCore::core AND COX_STATIC_DEPENDENCIES AND PrometheusCore_LIBRARY MATCHES "[.]so")
  file(COPY "${PrometheusCore_LIBRARY}" DESTINATION "${CMAKE_BINARY_DIR}/bin" FOLLOW_SYMLINK_CHAIN)
  set(CMAKE_BUILD_RPATH "$ORIGIN")
  # The same after installation, in the folder of libraries.
  set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  get_filename_component(prometheus_folder "${PrometheusCore_LIBRARY}" DIRECTORY)
  file(GLOB prometheus_files "${prometheus_folder}/libprometheus-cpp-core.so*")
  install(FILES ${prometheus_files} DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(NOT TARGET PrometheusCore::core)
  cox_missing(prometheus-cpp prometheus-cpp-dev)
  FetchContent_Declare(prometheus_cpp SOURCE_SUBDIR none URL
    https://github.com/jupp0r/prometheus-cpp/archive/refs/tags/v1.0.1.tar.gz
    https://deb.debian.org/debian/pool/main/p/prometheus-cpp/prometheus-cpp_1.0.1.orig.tar.gz
    URL_HASH SHA256=593e028d401d3298eada804d252bc38d8cab3ea1c9e88bcd72095281f85e6d16)
  FetchContent_MakeAvailable(prometheus_cpp)
  set(COX_PROMETHEUS_SOURCE_DIR "${prometheus_cpp_SOURCE_DIR}/core")
  file(WRITE "${prometheus_cpp_BINARY_DIR}/prometheus/detail/core_export.h" "#define PROMETHEUS_CPP_CORE_EXPORT\n")
  set(COX_PROMETHEUS_INCLUDE_DIRS "${COX_PROMETHEUS_SOURCE_DIR}/include" "${prometheus_cpp_BINARY_DIR}")
endif()

find_path(COX_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h PATHS /usr/local/cuda/include
  DOC "Folder of nvtx3/nvToolsExt.h; without it there are no NVTX ranges")
mark_as_advanced(COX_NVTX_INCLUDE_DIR)

# Headers only: the driver, NVRTC and NCCL are opened at run time.
find_path(COX_CUDA_INCLUDE_DIR cudaTypedefs.h PATHS /usr/local/cuda/include DOC "Folder of cuda.h, 12.4 or newer")
mark_as_advanced(COX_CUDA_INCLUDE_DIR)
if(COX_CUDA STREQUAL "AUTO")
  set(COX_CUDA OFF)
  set(why_not ": cudaTypedefs.h is not found (the headers of CUDA 12.4 or newer; COX_CUDA_INCLUDE_DIR)")
  if(COX_CUDA_INCLUDE_DIR)
    file(STRINGS "${COX_CUDA_INCLUDE_DIR}/cuda.h" cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX MATCH "[0-9]+$" cuda_version "${cuda_version}")
    set(why_not ": ${COX_CUDA_INCLUDE_DIR}/cuda.h is older than CUDA 12.4")
    if(cuda_version GREATER_EQUAL 12040)
      set(COX_CUDA ON)
      set(why_not "")
    endif()
  endif()
  message(STATUS "CUDA server: ${COX_CUDA}${why_not}")
elseif(COX_CUDA AND NOT COX_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "the headers of CUDA 12.4 or newer are missing: set COX_CUDA_INCLUDE_DIR, or COX_CUDA=OFF")
endif()
if(COX_CUDA AND COX_BUILD_TESTS)
  find_path(COX_CCCL_INCLUDE_DIR cuda/memory_resource HINTS "${COX_CUDA_INCLUDE_DIR}/cccl"
    DOC "Folder of cuda/memory_resource of CCCL 2.8 or newer; without it the memory resource is not tested")
  mark_as_advanced(COX_CCCL_INCLUDE_DIR)
  set(cccl_version "")
  if(EXISTS "${COX_CCCL_INCLUDE_DIR}/cuda/std/__cccl/version.h")
    file(STRINGS "${COX_CCCL_INCLUDE_DIR}/cuda/std/__cccl/version.h" cccl_version REGEX "^#define CCCL_VERSION [0-9]+")
    string(REGEX MATCH "[0-9]+$" cccl_version "${cccl_version}")
  endif()
  if(cccl_version STREQUAL "" OR cccl_version LESS 2008000)
    unset(COX_CCCL_INCLUDE_DIR CACHE)
    set(COX_CCCL_INCLUDE_DIR "")
  endif()
endif()

if(COX_BUILD_TOOLS OR COX_BUILD_PERF OR COX_BUILD_TESTS)
  find_package(CLI11 2.1 QUIET)
  if(NOT TARGET CLI11::CLI11)
    cox_missing(CLI11 libcli11-dev)
    cox_fetch_headers(cli11 CLI11::CLI11 include
      GIT_REPOSITORY https://github.com/CLIUtils/CLI11.git GIT_TAG v2.3.2 GIT_SHALLOW ON)
  endif()
  find_package(nlohmann_json 3.10 QUIET)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    cox_missing(nlohmann_json nlohmann-json3-dev)
    cox_fetch_headers(nlohmann_json nlohmann_json::nlohmann_json single_include
      GIT_REPOSITORY https://github.com/nlohmann/json.git GIT_TAG v3.11.3 GIT_SHALLOW ON)
  endif()
endif()

if(COX_BUILD_PERF OR COX_BUILD_TESTS)
  find_package(ZLIB)
  if(NOT TARGET ZLIB::ZLIB)
    message(FATAL_ERROR "zlib is missing: install zlib1g-dev, or set COX_BUILD_PERF and COX_BUILD_TESTS to OFF")
  endif()
endif()

# For tests alone: the library is built and installed without it. tools/dev test puts it into build/packages.
if(COX_BUILD_TESTS)
  find_path(COX_DLPACK_INCLUDE_DIR dlpack/dlpack.h HINTS "${PROJECT_SOURCE_DIR}/build/packages/include"
    DOC "Folder of dlpack/dlpack.h of DLPack 1.x; without it what includes it is not tested")
  mark_as_advanced(COX_DLPACK_INCLUDE_DIR)
  if(COX_DLPACK_INCLUDE_DIR)
    file(STRINGS "${COX_DLPACK_INCLUDE_DIR}/dlpack/dlpack.h" dlpack_version REGEX "^#define DLPACK_MAJOR_VERSION 1$")
    if(NOT dlpack_version)  # as that of Debian 12
      unset(COX_DLPACK_INCLUDE_DIR CACHE)
      set(COX_DLPACK_INCLUDE_DIR "")
    endif()
  endif()
endif()

if(COX_BUILD_TESTS)
  find_package(rapidcheck QUIET)
  if(NOT TARGET rapidcheck)
    cox_missing(RapidCheck librapidcheck-dev)
    FetchContent_Declare(rapidcheck GIT_REPOSITORY https://github.com/emil-e/rapidcheck.git
      GIT_TAG 08b505829ac9fc669aad3df794b7b60c63ef3ab0)
    FetchContent_MakeAvailable(rapidcheck)
  endif()
  find_package(Catch2 QUIET)
  if(NOT TARGET Catch2::Catch2)
    cox_missing(Catch2 catch2)
    cox_fetch_headers(catch2 Catch2::Catch2 single_include
      GIT_REPOSITORY https://github.com/catchorg/Catch2.git GIT_TAG v2.13.10 GIT_SHALLOW ON)
    set(Catch2_VERSION 2.13.10)
  endif()
endif()
