set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# One folder for every program: scripts and tests find them by name.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# -O2: -O3 doubles compile time of the gRPC units and gains nothing there; the
# kernels ask for -O3 themselves.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(HOLDFAST_CCACHE ccache)
if(HOLDFAST_CCACHE)
  # Paths below the tree count as relative, so that another clone finds the
  # same objects.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}"
      CCACHE_NOHASHDIR=1 "${HOLDFAST_CCACHE}")
endif()

# GCC contracts a*b+c into a fused operation even across intrinsics: cached
# bytes depend on it not doing so (kernels/host/ARITHMETIC.md).
set(holdfast_warnings -Wall -Wextra)
if(HOLDFAST_WERROR)
  list(APPEND holdfast_warnings -Werror)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${holdfast_warnings};-ffp-contract=off>")
if(HOLDFAST_SANITIZE)
  add_compile_options(-fsanitize=${HOLDFAST_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HOLDFAST_SANITIZE})
  # GCC's flow analysis sees false positives in instrumented code; the last in
  # frames of coroutines.
  add_compile_options(-Wno-maybe-uninitialized -Wno-tsan
    "$<$<COMPILE_LANGUAGE:CXX>:-Wno-mismatched-new-delete>")
endif()
include_directories(${CMAKE_SOURCE_DIR})
