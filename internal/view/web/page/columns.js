// The columns of the list, and their widths.

// from is the least width of the list, in px, at which a column is shown; to is the width at which
// it is no longer shown. width is a track of a CSS grid.
const columnList = [
  { key: "num", label: "#", title: "Number of the first event in its capture", from: 760, width: "4.4em", right: true },
  { key: "time", label: "Time", from: 470, width: "7.6em", right: true },
  { key: "glyph", label: "", title: "Direction or kind", from: 0, width: "1.5em" },
  { key: "server", label: "Server", from: 1000, width: "var(--server)" },
  { key: "method", label: "Method", from: 940, width: "var(--method)" },
  { key: "what", label: "Method and target", from: 0, to: 940, width: "minmax(4em, 1fr)" },
  { key: "target", label: "Target", from: 940, width: "minmax(6em, 3fr)" },
  { key: "id", label: "ID", title: "Id of the request", from: 1160, width: "4em", right: true },
  { key: "status", label: "Status", from: 0, width: "8.4em", narrow: "5.6em", small: "7em" },
  { key: "reqb", label: "Req B", title: "Bytes of the request", from: 1240, width: "4.9em", right: true },
  { key: "resb", label: "Res B", title: "Bytes of the response", from: 680, width: "4.9em", right: true },
  { key: "latency", label: "Latency", from: 0, width: "5em", right: true },
  { key: "wave", label: "Waterfall", from: 1100, width: "minmax(9em, 2fr)" },
  { key: "findings", label: "Findings", title: "Findings: errors, warnings, others", from: 420, width: "5em" },
];

// columnsFor returns the columns of a list with a width and a font size, both in px.
export function columnsFor(px, em) {
  const scale = em / 13;
  return columnList.filter((c) => px >= c.from * scale && (!c.to || px < c.to * scale));
}

// tracks returns grid-template-columns for columns.
export function tracks(columns, px) {
  return columns.map((c) => (px < 420 && c.narrow) || (px < 640 && c.small) || c.width).join(" ");
}

// growing returns the widths of the columns that grow with the list, up to a maximum.
export function growing(px, em) {
  const between = (least, share, most) => Math.min(most, Math.max(least, (px / em) * share)).toFixed(2) + "em";
  return { "--method": between(7.5, 0.125, 17), "--server": between(5, 0.08, 12) };
}
