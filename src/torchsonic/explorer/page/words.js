// Numbers in words.

export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("-", "−");
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toFixed(digits).replace("-", "−");
}

export function percent(share) {
  const value = 100 * share;
  if (value < 0.001) return "< 0.001 %";
  return `${value >= 10 ? value.toFixed(0) : value >= 0.1 ? value.toFixed(1) : value.toFixed(3)} %`;
}

export function meaningOf(name, meaning) {
  if (name === "orientation") return "0° right, 90° up";
  if (name === "scale") return "stretches the mode along its direction";
  if (name === "damping") return `decay length s/|Re a| = ${short(meaning.decay_length)} mm`;
  if (name === "transverse") return `width at the decay length: ${short(meaning.width)} mm`;
  if (meaning.wavelength === null) return "no oscillation";
  return `${short(meaning.angular_frequency)} rad/mm, wavelength ${short(meaning.wavelength)} mm`;
}

export const withUnit = (knob, value) => `${short(value)}${knob.unit === "°" ? "°" : knob.unit ? ` ${knob.unit}` : ""}`;
