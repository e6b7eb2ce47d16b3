# holdfast_test(name SOURCES... LIBS... [LABELS...]): one GoogleTest program,
# registered as one ctest test of the same name. Its working directory is the
# source tree, so that tests open golden files by their path in the tree.
function(holdfast_test name)
  if(NOT HOLDFAST_TESTS)
    return()
  endif()
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  if(CMAKE_CROSSCOMPILING)  # an emulated CPU
    math(EXPR A_TIMEOUT "10 * ${A_TIMEOUT}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT})
  if(A_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}")
  endif()
endfunction()
