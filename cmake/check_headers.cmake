# check_headers: every own header compiles alone. One stamp a header, with the
# compiler's dependencies, so that only what changed is compiled again.
# Files named *-inl.h are parts of a unit (Highway includes them once for each
# target) and not headers to include.
file(GLOB_RECURSE own_headers RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/shared/*.h ${CMAKE_SOURCE_DIR}/kernels/*.h
  ${CMAKE_SOURCE_DIR}/engine/*.h ${CMAKE_SOURCE_DIR}/cachesvc/*.h
  ${CMAKE_SOURCE_DIR}/gateway/*.h ${CMAKE_SOURCE_DIR}/tests/*.h)
list(FILTER own_headers EXCLUDE REGEX "-inl\\.h$")

set(header_flags -std=c++20 -Wall -Wextra -Werror -ffp-contract=off -fsyntax-only
  -I${CMAKE_SOURCE_DIR} -isystem ${CMAKE_BINARY_DIR}/proto)
foreach(folder ${Python_INCLUDE_DIRS})
  list(APPEND header_flags -isystem ${folder})
endforeach()

# Headers of the CUDA backend: against the emulation's runtime, so that no
# toolkit is needed.
set(emulated_flags -DHOLDFAST_CUDA_EMULATION -Wno-unknown-pragmas
  -I${CMAKE_SOURCE_DIR}/tests/cuda_emulation/include)

set(header_stamps)
foreach(header ${own_headers})
  set(stamp ${CMAKE_BINARY_DIR}/headers/${header}.stamp)
  get_filename_component(folder ${stamp} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  set(more_flags)
  if(header MATCHES "^(kernels/cuda|tests/cuda_emulation|tests/gpu)/")
    set(more_flags ${emulated_flags})
  endif()
  add_custom_command(OUTPUT ${stamp}
    COMMAND ${CMAKE_CXX_COMPILER} ${header_flags} ${more_flags} -MD -MF ${stamp}.d -MT ${stamp}
            -include ${header} -x c++ /dev/null
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${CMAKE_SOURCE_DIR}/${header} holdfast_proto
    DEPFILE ${stamp}.d
    COMMENT "Header ${header} alone" VERBATIM)
  list(APPEND header_stamps ${stamp})
endforeach()
add_custom_target(check_headers DEPENDS ${header_stamps})
