--- Options of printing tensors: digits, summaries, the width of lines.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local printing = {}

local profiles = {
  default = {precision = 4, threshold = 1000, edgeitems = 3, linewidth = 80},
  short = {precision = 2, threshold = 1000, edgeitems = 2, linewidth = 80},
  full = {precision = 4, threshold = math.huge, edgeitems = 3, linewidth = 80},
}

-- The largest precision, as in host/tensor/format.h; numbers beyond it would be digits of the binary fraction.
local most = {precision = 64, edgeitems = 2 ^ 31 - 1, linewidth = 2 ^ 31 - 1}

--- Set the options by which tensors are printed. Options that are absent keep their value, except sci_mode.
--
--   accelhost.set_printoptions {precision = 2}
--   accelhost.tensor{math.pi}                  --> tensor([3.14])
--   accelhost.set_printoptions {profile = "default"}
--   accelhost.tensor{math.pi}                  --> tensor([3.1416])
---@param precision integer? digits behind the point, 0 to 64; at first 4
---@param threshold number? elements above which a tensor is summarised; at first 1000, math.huge for never
---@param edgeitems integer? elements printed at both ends of a dim that is summarised; at first 3
---@param linewidth integer? columns of a line; at first 80
---@param profile string? "default", "short" (2 digits, 2 items) or "full" (no summaries); others override it
---@param sci_mode boolean? scientific notation always or never; nil: where the range of the values is wide
printing.set_printoptions = arguments.checked("set_printoptions", {
  {"precision: size"}, {"threshold: number"}, {"edgeitems: size"}, {"linewidth: count"},
  {"profile: 'default'|'short'|'full'"}, {"sci_mode: flag"},
}, function(precision, threshold, edgeitems, linewidth, profile, sci_mode)
  local given = {precision = precision, threshold = threshold, edgeitems = edgeitems, linewidth = linewidth}
  for _, name in ipairs {"precision", "edgeitems", "linewidth"} do
    if given[name] and given[name] > most[name] then
      arguments.fail("set_printoptions: %s: expected at most %d, got %.14g", name, most[name], given[name])
    end
  end
  local now = profiles[profile] or printing.get_printoptions()
  C.print.set_options(precision or now.precision, threshold or now.threshold, edgeitems or now.edgeitems,
    linewidth or now.linewidth, sci_mode)
end)

--- The options by which tensors are printed.
--
--   accelhost.get_printoptions().edgeitems  --> 3
---@return {precision: integer, threshold: number, edgeitems: integer, linewidth: integer, sci_mode: boolean?}
function printing.get_printoptions()
  local precision, threshold, edgeitems, linewidth, sci_mode = C.print.options()
  return {precision = precision, threshold = threshold, edgeitems = edgeitems, linewidth = linewidth,
    sci_mode = sci_mode}
end

return printing
