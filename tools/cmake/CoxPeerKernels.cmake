# The kernels of small collectives between GPUs, compiled by nvcc where it is present. Otherwise, and for other types,
# operations and numbers of GPUs, NVRTC compiles them at run time, from the same source.

find_program(COX_NVCC nvcc HINTS "${COX_CUDA_INCLUDE_DIR}/../bin" PATHS /usr/local/cuda/bin
  DOC "nvcc, 12.4 or newer, which compiles kernels of the library when it is built; OFF: NVRTC does, when they are needed")
mark_as_advanced(COX_NVCC)

# Compiled in about 20 s on two cores.
set(peer_kernel_names "")
foreach(ranks IN ITEMS 8 4 2)  # the longest first
  foreach(code IN ITEMS bf16_sum bf16_mean f16_sum f16_mean f32_sum f32_mean copies)
    list(APPEND peer_kernel_names ${code}_${ranks})
  endforeach()
endforeach()
set(peer_kernel_options -std=c++20 -diag-suppress=186)  # 186: an unsigned number is compared with 0

# The first of these sets of architectures that nvcc compiles for, in `result`, and the options for it in
# `result`_options; both empty if there is none, or nvcc has no host compiler that it accepts. PTX is made for the lowest
# one, and machine code for all of them from that PTX: this takes half the time of compiling for each.
function(cox_find_nvcc_architectures toolkit result)
  set(compress --compress-mode=size)
  if(toolkit LESS 13000)
    set(compress -Xfatbin=-compress-all)  # drivers of that time may not know the other format
  endif()
  set(folder "${PROJECT_BINARY_DIR}/peer_kernels")
  file(WRITE "${folder}/trial.cu" "extern \"C\" __global__ void trial(int* x) { *x = 1; }\n")
  foreach(architectures IN ITEMS "80,90,100" "80,90")
    string(REPLACE "," ";" list "${architectures}")
    list(TRANSFORM list PREPEND "sm_" OUTPUT_VARIABLE codes)
    list(GET list 0 lowest)
    list(JOIN codes "," codes)
    set(options -gencode "arch=compute_${lowest},code=[${codes},compute_${lowest}]" ${compress})
    execute_process(COMMAND "${COX_NVCC}" ${peer_kernel_options} ${options} -fatbin -o "${folder}/trial.fatbin"
      "${folder}/trial.cu" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      set(${result} "${architectures}" CACHE INTERNAL "")
      set(${result}_options "${options}" CACHE INTERNAL "")
      return()
    endif()
  endforeach()
  set(${result} "" CACHE INTERNAL "")
endfunction()

# Adds the images to `target`, which has embedded_kernels.cpp.
function(cox_embed_peer_kernels target)
  if(NOT COX_NVCC OR COX_SANITIZE OR CMAKE_CROSSCOMPILING)
    message(STATUS "Kernels between GPUs: compiled when they are needed")
    return()
  endif()
  execute_process(COMMAND "${COX_NVCC}" --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(NOT version MATCHES "release ([0-9]+)\\.([0-9]+)")
    message(STATUS "Kernels between GPUs: compiled when they are needed, since ${COX_NVCC} does not run")
    return()
  endif()
  math(EXPR toolkit "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
  if(NOT COX_TRIED_NVCC STREQUAL "${COX_NVCC} ${toolkit}")
    cox_find_nvcc_architectures(${toolkit} COX_NVCC_ARCHITECTURES)
    set(COX_TRIED_NVCC "${COX_NVCC} ${toolkit}" CACHE INTERNAL "")
  endif()
  if(NOT COX_NVCC_ARCHITECTURES)
    message(STATUS "Kernels between GPUs: compiled when they are needed, since ${COX_NVCC} cannot compile them")
    return()
  endif()
  message(STATUS "Kernels between GPUs: compiled by ${COX_NVCC} for ${COX_NVCC_ARCHITECTURES}")

  add_executable(cox_write_peer_kernels "${PROJECT_SOURCE_DIR}/tools/precompile/write_peer_kernels.cpp"
    "${PROJECT_SOURCE_DIR}/servers/cuda/peer/peer_kernels_source.cpp")
  cox_configure_target(cox_write_peer_kernels)
  target_include_directories(cox_write_peer_kernels PRIVATE "${COX_INCLUDE_DIR}")
  set(folder "${PROJECT_BINARY_DIR}/peer_kernels")
  set_target_properties(cox_write_peer_kernels PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${folder}")

  list(TRANSFORM peer_kernel_names REPLACE "(.+)" "${folder}/\\1.cu" OUTPUT_VARIABLE sources)
  add_custom_command(OUTPUT "${folder}/images.inc" ${sources}
    COMMAND cox_write_peer_kernels "${folder}" ${peer_kernel_names}
    DEPENDS cox_write_peer_kernels COMMENT "Writing the kernels between GPUs" VERBATIM)
  set(images "")
  foreach(name IN LISTS peer_kernel_names)
    add_custom_command(OUTPUT "${folder}/${name}.fatbin"
      COMMAND "${COX_NVCC}" ${peer_kernel_options} ${COX_NVCC_ARCHITECTURES_options} -fatbin -o "${folder}/${name}.fatbin"
        "${folder}/${name}.cu"
      DEPENDS "${folder}/${name}.cu" COMMENT "Compiling the kernels between GPUs: ${name}" VERBATIM)
    list(APPEND images "${folder}/${name}.fatbin")
  endforeach()
  # Not with others in one translation unit: ccache keeps no object of one that includes files by the assembler.
  set_source_files_properties("${PROJECT_SOURCE_DIR}/servers/cuda/peer/embedded_kernels.cpp" PROPERTIES
    COMPILE_DEFINITIONS
      "COX_PEER_KERNEL_IMAGES=\"${folder}/images.inc\";COX_PEER_KERNEL_CUBINS=${COX_NVCC_ARCHITECTURES};COX_PEER_KERNEL_TOOLKIT=${toolkit}"
    COMPILE_OPTIONS -fno-lto OBJECT_DEPENDS "${folder}/images.inc;${images}" SKIP_UNITY_BUILD_INCLUSION ON)
  # The images are made before the sources of the target are compiled, and only once by build tools other than Ninja.
  add_custom_target(cox_peer_kernels DEPENDS "${folder}/images.inc" ${images})
  add_dependencies(${target} cox_peer_kernels)
endfunction()
