// A value between the rows of a table, on the line through its neighbours.

/** The value at a step, by the values at ascending steps; beyond them that of the first or the last. */
export function between(values, steps, at) {
  const above = steps.findIndex((step) => step >= at);
  if (above < 1) return above ? values.at(-1) : values[0];
  const share = (at - steps[above - 1]) / (steps[above] - steps[above - 1]);
  return values[above - 1] + share * (values[above] - values[above - 1]);
}
