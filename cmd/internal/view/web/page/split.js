// The border between list and detail. The detail is beside the list or below it, or, where there is
// little space, replaces it.
import { byId } from "./dom.js";
import { railWanted } from "./facets.js";
import { emit, preference, setPreference, view } from "./state.js";

const beside = 1160; // least width, in px, for the detail beside the list
const below = 620; // and below it

const size = { full: false, arrange: null };

// toggleFull switches between the detail in full size and beside the list.
export function toggleFull(full) {
  size.full = full ?? !size.full;
  size.arrange?.();
}

// initSplit lets the user move the border. changed is called when the arrangement changes.
export function initSplit(changed) {
  const main = byId("main");
  const bar = byId("split");
  const arrange = () => {
    const width = main.clientWidth;
    const how = !view.open ? "alone" : size.full ? "full" : width >= beside ? "beside" : width >= below && main.clientHeight >= 460 ? "below" : "full";
    if (main.dataset.split !== how) {
      main.dataset.split = how;
      bar.setAttribute("aria-orientation", how === "below" ? "horizontal" : "vertical");
      changed(how);
    }
    apply(share());
    const rail = byId("rail");
    const wanted = railWanted(how === "beside" ? (width * share()) / 100 : width);
    if (rail.hidden === wanted) {
      rail.hidden = !wanted;
      emit("buttons");
      changed(how);
    }
  };
  const share = () => Math.min(80, Math.max(20, Number(preference("split", "52")) || 52));
  const apply = (percent) => {
    main.style.setProperty("--list", percent + "%");
    bar.setAttribute("aria-valuenow", String(Math.round(percent)));
  };
  const set = (percent) => {
    setPreference("split", String(Math.min(80, Math.max(20, percent))));
    apply(share());
  };
  listenPointer(main, bar, set);
  listenKeys(bar, share, set);
  size.arrange = arrange;
  new ResizeObserver(arrange).observe(main);
  arrange();
  return arrange;
}

function listenPointer(main, bar, set) {
  bar.addEventListener("pointerdown", (e) => {
    bar.setPointerCapture(e.pointerId);
    bar.classList.add("moving");
    e.preventDefault();
    bar.focus();
  });
  bar.addEventListener("pointermove", (e) => {
    if (!bar.hasPointerCapture(e.pointerId)) return;
    const box = main.getBoundingClientRect();
    set(main.dataset.split === "below" ? ((e.clientY - box.top) / box.height) * 100 : ((e.clientX - box.left) / box.width) * 100);
  });
  bar.addEventListener("pointerup", () => bar.classList.remove("moving"));
  bar.addEventListener("lostpointercapture", () => bar.classList.remove("moving"));
  bar.addEventListener("dblclick", () => set(52));
}

function listenKeys(bar, share, set) {
  bar.addEventListener("keydown", (e) => {
    const by = { ArrowLeft: -2, ArrowUp: -2, ArrowRight: 2, ArrowDown: 2, PageUp: -10, PageDown: 10 }[e.key];
    const to = { Home: 20, End: 80 }[e.key];
    if (by === undefined && to === undefined) return;
    e.preventDefault();
    e.stopPropagation();
    set(to ?? share() + by);
  });
}
