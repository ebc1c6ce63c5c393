package arm

// CleanCompute is cleanCompute, for tests.
var CleanCompute = cleanCompute
