--- accelhost top: once as text or JSON, again and again, or on a terminal as a page that redraws itself.
local C = require "accelhost._C"
local columns = require "accelhost.util.columns"
local json = require "accelhost.util.json"
local lines = require "accelhost.top.lines"
local screen = require "accelhost.util.screen"
local state = require "accelhost.top.state"

-- Seconds between the two reads of --once: for CPU usage, and to detect ranks without progress.
local MOMENT = 0.3

-- The fields of a rank in JSON output; the others are for comparing two reads.
local fields = {
  "rank", "pid", "state", "steps", "step_rate", "step_seconds", "backwards", "loss", "memory", "threads", "cpu",
  "cpu_seconds", "collective", "message", "waits_for", "site", "op", "backward_of", "doing",
}

local function encoded(seen)
  local jobs = json.array {}
  for i, job in ipairs(seen.jobs) do
    local ranks = json.array {}
    for r, rank in ipairs(job.ranks) do
      ranks[r] = {}
      for _, field in ipairs(fields) do ranks[r][field] = rank[field] end
      if rank.loss and (rank.loss ~= rank.loss or math.abs(rank.loss) == math.huge) then
        ranks[r].loss = tostring(rank.loss)
      end
      json.array(ranks[r].waits_for)
      if rank.collective and rank.collective.ranks then json.array(rank.collective.ranks) end
    end
    jobs[i] = {pid = job.pid, command = job.command, ranks = ranks}
  end
  for _, card in ipairs(seen.cards) do json.array(card.ranks) end
  return json.encode {jobs = jobs, gpus = seen.cards[1] and json.array(seen.cards) or nil}
end

local function show_text(seen, as_json)
  if as_json then
    io.write(encoded(seen), "\n")
  else
    local width = C.system.isatty(1) and C.terminal.size() or nil
    io.write(table.concat(lines.of(seen, width), "\n"), "\n")
  end
  io.flush()
end

-- Return the page: a title, the lines that fit, and the number of the others.
local function draw(seen, interval)
  local width, height = C.terminal.size()
  local all = lines.of(seen, width)
  local page = {columns.cut(("accelhost top, every %g s; q quits"):format(interval), width), ""}
  for _, line in ipairs(all) do
    if #page == height - 1 and #all > height - 2 then
      page[#page + 1] = columns.cut(("... %d lines more"):format(#all - (height - 3)), width)
      break
    end
    page[#page + 1] = columns.cut(line, width)
  end
  io.write("\27[H", table.concat(page, "\27[K\r\n"), "\27[K\27[J")
  io.flush()
end

local function run_page(wanted, interval)
  local seen
  local function watch()
    io.write "\27[?1049h\27[?25l"
    repeat
      seen = state.look(wanted, seen)
      draw(seen, interval)
      local key = C.terminal.key(interval)
    until key == "q" or key == "Q" or key == "\3" or key == "end"
  end
  C.terminal.enter()
  local fine, message = pcall(watch)
  io.write "\27[?25h\27[?1049l"
  io.flush()
  C.terminal.leave()
  if not fine then error(message, 0) end
end

local function run_lines(wanted, options)
  local seen = state.look(wanted)
  local is_over, was_empty
  repeat
    local had_jobs = #seen.jobs > 0
    C.terminal.sleep(options.once and MOMENT or options.interval)
    seen = state.look(wanted, seen)
    local is_empty = #seen.jobs == 0
    if options.json or not (is_empty and was_empty) then show_text(seen, options.json) end
    was_empty = is_empty
    -- A job that was named and is over, or never was there, is not awaited.
    is_over = wanted and is_empty
    if is_over and had_jobs and not options.once then return 0 end
  until options.once or is_over
  return is_over and 1 or 0
end

--- Run the command; its exit code.
---@param wanted? string
---@param options {once: boolean, json: boolean, interval: number}
---@return integer
return function(wanted, options)
  local proc = io.open "/proc/self/stat"
  if not proc then
    io.stderr:write("accelhost top: /proc is not mounted: the processes of jobs cannot be seen (as root: ",
      "mount -t proc proc /proc)\n")
    return 1
  end
  proc:close()
  local page = not (options.once or options.json) and screen.is_redrawn(1) and C.system.isatty(0)
  if page then
    run_page(wanted, options.interval)
    return 0
  end
  return run_lines(wanted, options)
end
