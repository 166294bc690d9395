-- The styles of the roles of a scene's items, the same for every picture format.
local looks = {}

local RUNS = {
  "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
}

local lines = {
  axis = {color = "#444444", width = 1}, grid = {color = "#e4e4e4", width = 1}, curve = {width = 1.6},
  raw = {width = 1, opacity = 0.3}, key = {width = 3},
}
local texts = {
  title = {color = "#111111", size = 13, bold = true}, tick = {color = "#444444", size = 11},
  note = {color = "#777777", size = 11}, legend = {color = "#111111", size = 12}, mark = {color = "#111111", size = 11},
}

local function run_color(run) return RUNS[(run - 1) % #RUNS + 1] end

--- Of a line: {color, width, opacity}.
---@param item table
function looks.line(item)
  local look = lines[item.role]
  return {color = look.color or run_color(item.run), width = look.width, opacity = look.opacity or 1}
end

--- Of a text: {color, size, bold}.
---@param item table
---@return table
function looks.text(item) return texts[item.role] end

looks.page = "#ffffff"

return looks
