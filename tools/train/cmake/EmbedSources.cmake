# Writes a header with the text of each CUDA file of a folder as a string.
# usage: cmake -DOUTPUT=HEADER -DFOLDER=FOLDER -P EmbedSources.cmake
file(GLOB files "${FOLDER}/*.cu")
set(text "// Written by cmake/EmbedSources.cmake from src/kernels/cuda.\n#pragma once\n\nnamespace train::cuda_source {\n")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  file(READ "${file}" content)
  string(APPEND text "\ninline constexpr const char* ${name} = R\"kernel(${content})kernel\";\n")
endforeach()
string(APPEND text "\n}  // namespace train::cuda_source\n")
file(WRITE "${OUTPUT}" "${text}")
