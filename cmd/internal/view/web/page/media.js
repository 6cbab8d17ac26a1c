// Images and audio in messages. The bytes become a Blob with a type from a short list. An <img>
// runs no script, not even that of an SVG.
import { h } from "./dom.js";
import { fmtSize } from "./format.js";
import { escapeLine } from "./safetext.js";

const mediaTypes = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/svg+xml", "audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3", "audio/ogg", "audio/flac", "audio/webm", "audio/mp4", "audio/aac"]);

let urls = [];

// releaseMedia releases the data of earlier previews.
export function releaseMedia() {
  for (const u of urls) URL.revokeObjectURL(u);
  urls = [];
}

// fromBase64 decodes Base64 from the server.
function fromBase64(text) {
  const s = atob(text);
  const out = new Uint8Array(s.length);
  for (let i = 0; i < s.length; i++) out[i] = s.charCodeAt(i);
  return out;
}

// mediaView shows data that a payload contains in Base64. blob is a detail.Blob.
export function mediaView(blob) {
  const media = String(blob.media || "").toLowerCase().split(";")[0].trim();
  const box = h("figure", { class: "media" });
  if (blob.preview && blob.data && mediaTypes.has(media)) {
    const url = URL.createObjectURL(new Blob([fromBase64(blob.data)], { type: media }));
    urls.push(url);
    if (media.startsWith("image/")) box.append(imageView(url, box));
    else box.append(h("audio", { controls: true, src: url, preload: "metadata", "aria-label": "Audio in the message" }));
  }
  const what = [escapeLine(blob.media) || "Base64", fmtSize(blob.len)].join(", ");
  box.append(h("figcaption", { text: what }));
  return box;
}

function imageView(url, box) {
  const img = h("img", { alt: "Image in the message", src: url });
  img.addEventListener("load", () => box.append(h("figcaption", { text: img.naturalWidth + " × " + img.naturalHeight + " px" })));
  img.addEventListener("error", () => img.replaceWith(h("p", { class: "hint", text: "The browser cannot show this image." })));
  return img;
}
