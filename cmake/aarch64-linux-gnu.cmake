# Toolchain: Debian's cross compiler for Arm; programs run under qemu-user.
# HOLDFAST_ARM_ROOT is a folder with the arm64 packages of Highway and
# GoogleTest unpacked (scripts/test-arm makes one).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

if(NOT HOLDFAST_ARM_ROOT)
  message(FATAL_ERROR "HOLDFAST_ARM_ROOT is not set (scripts/test-arm sets it)")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HOLDFAST_ARM_ROOT)
set(CMAKE_FIND_ROOT_PATH ${HOLDFAST_ARM_ROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Which CPU it is: qemu's variable QEMU_CPU.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
