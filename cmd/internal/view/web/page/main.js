// The page, as the sum of its parts.
import { actions } from "./actions.js";
import { toast } from "./announce.js";
import { initButtons } from "./buttons.js";
import { initHeld } from "./dialog-held.js";
import { hideRow, initDetail, showTab } from "./detail.js";
import { byId, reducedMotion } from "./dom.js";
import { initDrop } from "./dropfile.js";
import { initFilter, setFilterText } from "./filterbox.js";
import { fmtDateTime } from "./format.js";
import { Grid } from "./grid.js";
import { putIcons } from "./icons.js";
import { resetFrames } from "./items.js";
import { listenKeys } from "./keys.js";
import { initFacets } from "./facets.js";
import { drawPicture, initPicture } from "./picture.js";
import { initOverview } from "./strip.js";
import { showRowMenu } from "./rowmenu.js";
import { allLoaded, applyFilter, applyFilterText, clearFilter, columnsChanged, focusList, goTo, page, redraw, resetList, rowsChanged, scheduleRedraw, select, selectWanted, setFollow, setZoom, toggleFold } from "./listing.js";
import { exported } from "./source.js";
import { initSplit } from "./split.js";
import { emit, on, readHash, view } from "./state.js";
import { drawEmpty, leftText } from "./statusbar.js";
import { putRows, resetStore, setSources, store } from "./store.js";
import { connect } from "./stream.js";
import { initTheme } from "./theme.js";

function start() {
  readHash();
  putIcons(document);
  initTheme();
  page.wanted = view.row;
  page.grid = new Grid(byId("grid"), { select: (item, open) => select(item.row, item.back, open), fold: (item) => toggleFold(item.row), follow: setFollow, columns: columnsChanged, menu: rowMenu });
  initDetail(goTo);
  page.arrange = initSplit((how) => {
    byId("list").hidden = how === "full";
    page.grid.measure();
  });
  initFacets(applyFilterText);
  initOverview(setZoom);
  initPicture((capture, n) => {
    page.wantedN = { c: capture, n };
    view.open = true;
    selectWanted(store.rows.values());
  });
  initFilter(applyFilter, focusList);
  initButtons();
  initHeld();
  listenKeys(actions, () => page.grid.hasFocus());
  addEventListener("hashchange", fromHash);
  on("reset", resetList);
  on("rows", (changed) => rowsChanged(changed));
  on("waiting", () => scheduleRedraw());
  on("synced", allLoaded);
  on("sources", () => scheduleRedraw());
  on("searching", () => scheduleRedraw());
  on("total", (evicted) => evicted && scheduleRedraw());
  setInterval(() => page.grid.tick(), reducedMotion() ? 1000 : 100);
  page.grid.following = view.follow;
  emit("buttons");
  page.arrange();
  if (exported) startExported();
  else {
    initDrop(() => toast("Opened. Its rows follow."));
    drawEmpty(0, clearFilter);
    connect(view.filter);
  }
}

function rowMenu(item, at) {
  select(item.row, item.back, false);
  showRowMenu(at);
}

function startExported() {
  document.body.classList.add("exported");
  for (const el of document.querySelectorAll("[data-live]")) el.hidden = true;
  setSources(exported.sources || []);
  store.total = exported.left?.rows || 0; // drawStatus adds the rows of the page
  store.frozen = exported.exported || 0;
  const made = exported.exported ? "Exported " + fmtDateTime(exported.exported) + ". " : "";
  const left = exported.left ? leftText(exported.left) : "";
  byId("exportnote").textContent = made + left;
  byId("exportnote").hidden = !(made + left);
  view.follow = page.grid.following = false;
  loadExported();
}

function loadExported() {
  resetStore();
  store.sessions = exported.sessions || [];
  emit("facets", (store.facets = exported.facets));
  putRows(exported.rows || []);
  store.synced = true;
}

function fromHash() {
  const filter = view.filter;
  if (!readHash()) return;
  page.wanted = view.row;
  setFilterText(view.filter);
  page.grid.following = view.follow;
  if (view.open) showTab(view.tab);
  else hideRow();
  page.arrange();
  page.grid.columnsChanged();
  drawPicture();
  emit("zoom");
  resetFrames();
  emit("buttons");
  if (view.filter !== filter) applyFilter(view.filter);
  redraw(null);
  selectWanted(store.rows.values());
  emit("head");
}

start();
