// clang includes this header of cuRAND for its variable threadIdx. The packages of the compiler do
// not have it.
