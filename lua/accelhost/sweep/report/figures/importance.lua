--- How much of the difference between good trials and others each parameter accounts for, as bars.
local frame = require "accelhost.sweep.report.figures.frame"
local markup = require "accelhost.sweep.report.markup"

local tag, text = markup.tag, markup.text

--- The section, nil when importances are not known.
---@param self table from accelhost.sweep.report.view
---@return string?
return function(self)
  local list = self.importance
  if not list or #list == 0 then return nil end
  local most, rows = 1e-12, {}
  for _, one in ipairs(list) do most = math.max(most, one.importance) end
  for i, one in ipairs(list) do
    rows[i] = tag("tr", nil, tag("th", {scope = "row"}, text(one.name)),
      tag("td", {class = "bar"}, tag("i", {style = ("width:%.4g%%"):format(one.importance / most * 100)})),
      tag("td", {class = "number"}, ("%.3f"):format(one.importance)))
  end
  return frame.section("importance", "Importance", "How much choosing a parameter well sets good trials apart from the "
    .. "rest (PED-ANOVA); the shares add up to 1.",
    tag("table", {class = "bars"}, tag("tbody", nil, table.concat(rows))))
end
