# Finds a CUDA Toolkit of 13.0 or later: nvcc on PATH, /usr/local/cuda, then the
# wheels that scripts/setup --cuda unpacks. Sets HOLDFAST_HAVE_CUDA and says what
# was found.
set(HOLDFAST_HAVE_CUDA OFF)
if(NOT HOLDFAST_CUDA)
  message(STATUS "CUDA backend: switched off (HOLDFAST_CUDA)")
  return()
endif()
if(CMAKE_CROSSCOMPILING OR HOLDFAST_SANITIZE)
  message(STATUS "CUDA backend: not built when cross-compiling or with sanitizers")
  return()
endif()

set(holdfast_data "$ENV{XDG_DATA_HOME}")
if(NOT holdfast_data)
  set(holdfast_data "$ENV{HOME}/.local/share")
endif()

set(nvcc_seen)
find_program(HOLDFAST_PATH_NVCC nvcc)
mark_as_advanced(HOLDFAST_PATH_NVCC)
foreach(nvcc "${HOLDFAST_PATH_NVCC}" /usr/local/cuda/bin/nvcc
        "${holdfast_data}/holdfast/cuda/toolkit/bin/nvcc")
  if(NOT EXISTS "${nvcc}")
    continue()
  endif()
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE nvcc_says ERROR_QUIET)
  if(nvcc_says MATCHES "release ([0-9]+\\.[0-9]+)")
    if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 13.0)
      set(HOLDFAST_HAVE_CUDA ON)
      set(holdfast_nvcc "${nvcc}")
      break()
    endif()
    list(APPEND nvcc_seen "${nvcc} is of ${CMAKE_MATCH_1}")
  endif()
endforeach()
if(NOT HOLDFAST_HAVE_CUDA)
  list(JOIN nvcc_seen ", " nvcc_seen)
  message(STATUS "CUDA backend: not built, no CUDA Toolkit of 13.0 or later (scripts/setup --cuda gets one) ${nvcc_seen}")
  return()
endif()

# The two machines this is for (H100/H200, DGX Spark), and PTX of the older one
# for what comes in between and after.
set(CMAKE_CUDA_ARCHITECTURES "90-real;121-real;90-virtual"
    CACHE STRING "Architectures of the CUDA backend, as nvcc names them")
set(CMAKE_CUDA_COMPILER "${holdfast_nvcc}")
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
# 2810: nvcc's front end takes the reference that an assignment returns for an
# ignored value of a [[nodiscard]] type. Formats of weights are constexpr
# functions of the host's headers. A kernel that spills registers is an error.
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-diag-suppress=2810;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Werror;-Xptxas=--warn-on-spills,--warning-as-error>")
get_filename_component(CUDAToolkit_ROOT "${holdfast_nvcc}" DIRECTORY)
get_filename_component(CUDAToolkit_ROOT "${CUDAToolkit_ROOT}" DIRECTORY)
find_package(CUDAToolkit 13.0 REQUIRED)
message(STATUS "CUDA backend: CUDA Toolkit ${CUDAToolkit_VERSION} of ${CUDAToolkit_ROOT} for ${CMAKE_CUDA_ARCHITECTURES}")
