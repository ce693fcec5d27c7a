# One target per folder, and the include form <coxswain/FOLDER/FILE.hpp> for all of them.

set(COX_INCLUDE_DIR "${PROJECT_BINARY_DIR}/include")

# Links each named top-level folder that exists into <build>/include/coxswain/.
function(cox_link_folders)
  file(MAKE_DIRECTORY "${COX_INCLUDE_DIR}/coxswain")
  foreach(folder IN LISTS ARGN)
    if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}")
      file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${folder}" "${COX_INCLUDE_DIR}/coxswain/${folder}" SYMBOLIC)
    endif()
  endforeach()
endfunction()

# A shared library of ours shows the namespace cox alone: what it contains of spdlog, fmt, toml++ and prometheus-cpp
# would otherwise take the place of another version's in the same process. Versions with different minor numbers are not
# compatible, as find_package(coxswain) has it, and so have different names at run time.
function(cox_configure_shared_library target)
  set(script "${PROJECT_SOURCE_DIR}/tools/cmake/coxswain.version-script")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${script}")
  set_target_properties(${target} PROPERTIES
    LINK_DEPENDS "${script}" VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
endfunction()

# cox_add_library(name LINK targets...)
# coxswain::<name> from the current folder's sources; without any it is header-only. Installed with its headers.
function(cox_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK")
  set(target coxswain_${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS LIST_DIRECTORIES false "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(sources)
    set(scope PUBLIC)
    add_library(${target} ${sources})
    cox_configure_target(${target})
    cox_compile_a_few_at_a_time(${target} 16)
    if(BUILD_SHARED_LIBS)
      cox_configure_shared_library(${target})
    endif()
  else()
    set(scope INTERFACE)
    add_library(${target} INTERFACE)
    target_compile_features(${target} INTERFACE cxx_std_20)
  endif()
  add_library(coxswain::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  if(BUILD_SHARED_LIBS)
    target_compile_definitions(${target} ${scope} COX_SHARED=1)
  endif()
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${COX_INCLUDE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} ${scope} ${arg_LINK})

  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  install(TARGETS ${target} EXPORT coxswainTargets)
  install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/coxswain/${folder}"
    FILES_MATCHING PATTERN "*.hpp" PATTERN "*.inc")
endfunction()

# cox_add_program(target SOURCES files... [LINK targets...])
# A program of ours: umbrella, warnings, launcher.
function(cox_add_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_executable(${target} ${arg_SOURCES})
  cox_configure_target(${target})
  target_link_libraries(${target} PRIVATE coxswain::coxswain ${arg_LINK})
  if(COX_SANITIZE MATCHES "address")
    target_link_options(${target} PRIVATE -no-pie)  # starts in two thirds of the time: there is a process for each test
  endif()
  if(COX_TEST_LAUNCHER)
    set_target_properties(${target} PROPERTIES CROSSCOMPILING_EMULATOR "${COX_TEST_LAUNCHER}")
  endif()
endfunction()

# cox_precompile(header [targets...])
# With COX_PRECOMPILED_HEADERS: this header of the current folder, which needs the targets, is compiled once for all
# programs that cox_use_precompiled(program header) names. They must have the options of the two functions called here.
function(cox_precompile header)
  if(COX_PRECOMPILED_HEADERS)
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${header}.cpp" CONTENT "int main() {}\n")
    cox_add_program(precompiled_${header} SOURCES "${CMAKE_CURRENT_BINARY_DIR}/${header}.cpp" LINK ${ARGN})
    cox_compile_for_a_short_build(precompiled_${header})
    cox_compile_without_pointer_checks(precompiled_${header})
    target_precompile_headers(precompiled_${header} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/${header}.hpp")
  endif()
endfunction()
function(cox_use_precompiled program header)
  if(COX_PRECOMPILED_HEADERS)
    target_precompile_headers(${program} REUSE_FROM precompiled_${header})
  endif()
endfunction()
