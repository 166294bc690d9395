--- The jobs as lines of text.
local columns = require "accelhost.util.columns"
local grid = require "accelhost.util.grid"
local printable = require "accelhost.util.printable"

local lines = {}

local function bytes(count)
  if not count then return "-" end
  for _, unit in ipairs {"B", "K", "M", "G"} do
    if count < 999.5 then return (count < 9.95 and unit ~= "B" and "%.1f%s" or "%.0f%s"):format(count, unit) end
    count = count / 1024
  end
  return ("%.1fT"):format(count)
end

local function seconds(count)
  if not count then return "-" end
  if count < 99.5 then return ("%.1f s"):format(count) end
  if count < 5970 then return ("%.0f min"):format(count / 60) end
  return ("%.1f h"):format(count / 3600)
end

local function number(value, format)
  return value and (value ~= value and "nan" or format:format(value)) or "-"
end

local function collective(rank)
  local c = rank.collective
  if not c then return "-" end
  local part = c.ranks and " of ranks " .. table.concat(c.ranks, " ") or ""
  return ("%s #%d%s at %s, %s"):format(c.name, c.number, part, c.site or "?", seconds(c.seconds))
end

-- The line that began the last backward, or where a message is waited for.
local function site(rank)
  return rank.message and rank.message.site or rank.site or "-"
end

-- Heading, text of a rank, is it aligned to the right. The cells from LAST_NARROW + 1 on are in separate lines where
-- the table is wider than the terminal.
local cells = {
  {"RANK", function(rank) return tostring(rank.rank) end, true},
  {"PID", function(rank) return tostring(rank.pid) end, true},
  {"STATE", function(rank) return rank.state end},
  {"STEPS", function(rank) return tostring(rank.steps) end, true},
  {"STEPS/S", function(rank) return number(rank.step_rate, "%.4g") end, true},
  {"LOSS", function(rank) return number(rank.loss, "%.5g") end, true},
  {"MEMORY", function(rank) return bytes(rank.memory) end, true},
  {"CPU", function(rank) return number(rank.cpu and rank.cpu * 100, "%.0f%%") end, true},
  {"THR", function(rank) return number(rank.threads, "%d") end, true},
  {"LAST COLLECTIVE", collective},
  {"SCRIPT LINE", site},
  {"NOW", function(rank) return rank.doing or "" end},
}
local LAST_NARROW = 9

-- Return a line without the folders of script lines in it where it is too wide.
local function shortened(line, width)
  return columns.of(line) > width and line:gsub("%S*/(%S+:%d+)", "%1") or line
end

-- Return the lines that a narrow terminal shows below the row of a rank: the present first, words wrapped at its width.
local function lines_below(row, width)
  local made, line = {}, nil
  for _, i in ipairs {12, 11, 10} do
    local text = row[i] ~= "" and row[i] ~= "-" and ("%s: %s"):format(cells[i][1]:lower(), row[i])
    if text and line and columns.of(line) + 2 + columns.of(text) <= width then
      line = line .. "; " .. text
    elseif text then
      made[#made + 1] = line
      line = shortened("      " .. text, width)
    end
  end
  made[#made + 1] = line
  return made
end

local function table_of(job, width)
  local rows, right = {{}}, {}
  for i, cell in ipairs(cells) do rows[1][i], right[i] = cell[1], cell[3] end
  for _, rank in ipairs(job.ranks) do
    local row = {}
    for i, cell in ipairs(cells) do row[i] = printable.text(cell[2](rank)) end
    rows[#rows + 1] = row
  end
  local lines_of, left_out = grid.lines(rows, {right = right, width = width})
  if left_out == 0 then return lines_of end
  local narrow, made = {}, {}
  for r, row in ipairs(rows) do narrow[r] = {unpack(row, 1, LAST_NARROW)} end
  for r, line in ipairs(grid.lines(narrow, {right = right})) do
    made[#made + 1] = line
    for _, below in ipairs(r > 1 and lines_below(rows[r], width) or {}) do made[#made + 1] = below end
  end
  return made
end

local function watts(card)
  if not card.power then return "-" end
  return card.power_limit and ("%.0f of %.0f W"):format(card.power, card.power_limit) or ("%.0f W"):format(card.power)
end

-- Errors of the memory since the driver was loaded.
local function ecc(card)
  if not card.ecc_uncorrected then return "-" end
  return ("%d corrected, %d not"):format(card.ecc_corrected or 0, card.ecc_uncorrected)
end

local card_cells = {
  {"GPU", function(_, place) return tostring(place) end, true},
  {"NAME", function(card) return card.name or "-" end},
  {"BUSY", function(card) return number(card.utilization, "%d%%") end, true},
  {"MEMORY", function(card)
    return card.memory_used and bytes(card.memory_used) .. " of " .. bytes(card.memory_total) or "-"
  end, true},
  {"TEMP", function(card) return number(card.temperature, "%d C") end, true},
  {"POWER", watts, true},
  {"ECC ERRORS", ecc},
  {"RANKS", function(card) return card.ranks[1] and table.concat(card.ranks, " ") or "-" end},
}

local function table_of_cards(cards, width)
  local rows, right = {{}}, {}
  for i, cell in ipairs(card_cells) do rows[1][i], right[i] = cell[1], cell[3] end
  for c, card in ipairs(cards) do
    rows[c + 1] = {}
    for i, cell in ipairs(card_cells) do rows[c + 1][i] = printable.text(cell[2](card, c - 1)) end
  end
  return (grid.lines(rows, {right = right, width = width}))
end

--- Return the lines of a result of state.look.
---@param seen table
---@param width? integer columns of the terminal; without it each rank is one line
function lines.of(seen, width)
  local made = {}
  for _, job in ipairs(seen.jobs) do
    if #made > 0 then made[#made + 1] = "" end
    made[#made + 1] = ("job %d: %s"):format(job.pid, printable.text(job.command))
    for _, line in ipairs(table_of(job, width)) do made[#made + 1] = line end
  end
  if #made == 0 then made[1] = "none of your jobs runs on this host" end
  if not seen.cards or #seen.cards == 0 then return made end
  made[#made + 1] = ""
  for _, line in ipairs(table_of_cards(seen.cards, width)) do made[#made + 1] = line end
  return made
end

return lines
