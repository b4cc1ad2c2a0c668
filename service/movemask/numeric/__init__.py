"""Pure functions on arrays, numpy alone.

Shapes: `B` rows of a batch, `A` slots of a vocabulary, `N` legal slots of the whole batch. A ragged batch is
in CSR form:
`values [N]` and `indptr [B + 1]`, row `b` being `values[indptr[b]:indptr[b + 1]]`. Inputs of any float dtype;
float64 inside.
"""
