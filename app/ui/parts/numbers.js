// Numbers as all pages write them. Exports nothing.

const whole = (value) => Math.round(value).toLocaleString("en-US")
// A share as per cent, with at most so many `digits` after the point; without them in whole ones from 10% on and in two
// figures below.
function percent(share, digits) {
  const value = 100 * Math.abs(share), few = digits === undefined && value < 9.95
  return `${share < 0 ? "−" : ""}${Number(few ? value.toPrecision(2) : value.toFixed(digits ?? 0))}%`
}
const change = (share) => `${share > 0 ? "+" : share < 0 ? "−" : ""}${(100 * Math.abs(share)).toFixed(1)}%`
