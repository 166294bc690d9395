--- The importance of each parameter for the difference between good trials and others, as bars.
local frame = require "accelhost.sweep.report.figures.frame"
local importances = require "accelhost.sweep.importance"
local markup = require "accelhost.sweep.report.markup"

local tag, text = markup.tag, markup.text

--- The section; without importances the reason, nil where there is nothing to compare.
return function(self)
  local list = self.importance
  if not list or #list == 0 then
    if self.found.total == 0 or #self.study.space < 2 then return nil end
    return frame.section("importance", "Importance", importances.NEEDS:format(#self.found.ranked))
  end
  local most, rows = 1e-12, {}
  for _, one in ipairs(list) do most = math.max(most, one.importance) end
  for i, one in ipairs(list) do
    rows[i] = tag("tr", nil, tag("th", {scope = "row"}, text(one.name)),
      tag("td", {class = "bar"}, tag("i", {style = ("width:%.4g%%"):format(one.importance / most * 100)})),
      tag("td", {class = "number"}, ("%.3f"):format(one.importance)),
      tag("td", {class = "number"}, one.correlation and ("%+.2f"):format(one.correlation) or ""))
  end
  local heads = tag("tr", nil, tag("th", {scope = "col"}, "parameter"), tag("td"),
    tag("th", {scope = "col", class = "number"}, "share"), tag("th", {scope = "col", class = "number"}, "rank corr."))
  return frame.section("importance", "Importance", ("How differently the best tenth of the trials is spread over a "
    .. "parameter's range than all trials are (PED-ANOVA), as shares of 1; and Spearman's rank correlation of numbers "
    .. "with %s."):format(self.study.metric),
    tag("table", {class = "bars"}, tag("thead", nil, heads), tag("tbody", nil, table.concat(rows))))
end
