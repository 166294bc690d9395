--- Measures training steps and kernels on a card, next to PyTorch eager and torch.compile on the same card:
---
---   accelhost scripts/bench/gpu/run.lua [--seconds 240] [--rows "gpt2 mnist_64"] [--smoke]
---
--- Each side of a row is a fresh process, ours and PyTorch's in turn; rows run in the order of their importance, and
--- those for which the time has run out are left out and named. Without PyTorch only ours is measured. --smoke runs
--- everything in tiny sizes, also on the simulated GPU, and judges nothing. A line of --goals is a goal, the
--- measurement, the verdict and the command, with | between them.
local accelhost = require "accelhost"
local C = require "accelhost._C"
local now = C.system.now

local here = arg[0]:match "^(.*)/[^/]*$"
local options = accelhost.parse_args {
  description = "Measures training steps and kernels on a CUDA card, next to PyTorch.",
  {"seconds", 0, "time limit; 0: none", minimum = 0},
  {"rows", "", "names of rows, all when empty"},
  {"host", "./accelhost", "the program that is measured"},
  {"python", nil, "the interpreter that has PyTorch (default: the first that has it)", type = "string"},
  {"no_peer", false, "our side only"},
  {"json", "build/bench-gpu.json", "where the table is written as JSON"},
  {"goals", nil, "a file to which the lines of goals are added", type = "string"},
  {"smoke", false, "tiny sizes, one step each"},
}
local begin = now()
local function left() return options.seconds > 0 and options.seconds - (now() - begin) or math.huge end

local function first_line(command)
  local pipe = io.popen(command .. " 2>/dev/null")
  local line = pipe:read "*l"
  pipe:close()
  return line
end

local function find_python()
  for _, name in ipairs {options.python or "python3", "python", "/usr/bin/python3"} do
    local version = first_line(name .. " -c 'import torch; print(torch.__version__)'")
    if version then return name, version end
  end
end
local python, torch_version
if not options.no_peer then python, torch_version = find_python() end

-- A process's "name value" lines; nil, and a message is printed, if it failed or exceeded its time.
local function measure(what, command)
  local seconds = math.min(left(), 300)
  if seconds < 3 then return nil, "no time left" end
  local log = os.tmpname()
  local pipe = io.popen(("timeout %d %s 2>%s; echo status $?"):format(math.floor(seconds), command, log))
  local result = {}
  for line in pipe:lines() do
    local name, value = line:match "^(%S+)%s+(%S+)$"
    if name then result[name] = tonumber(value) end
  end
  pipe:close()
  local file = io.open(log)
  local said = file and file:read "*a" or ""
  if file then file:close() end
  os.remove(log)
  if result.status == 0 then return result end
  local reason = result.status == 124 and "its time was up" or said:match "[^\n]*Error[^\n]*" or said:match "^[^\n]*"
  io.stderr:write(("%s: failed (%s)\n"):format(what, reason or ""))
  return nil, reason
end

local tail = options.smoke and " smoke" or ""
local function ours(script, arguments)
  return ("%s %s/%s.lua%s%s"):format(options.host, here, script, arguments, tail)
end
local function torch(script, arguments)
  return python and ("env PYTHONDONTWRITEBYTECODE=1 %s %s/%s.py%s%s"):format(python, here, script, arguments, tail)
end

-- name, arguments of train, the mode of torch.compile that serves it best
local rows = {
  {"gpt2", "gpt2 16 bfloat16", "compile", both = true}, {"mnist_64", "mnist_cnn 64 float32", "graph", both = true},
  {"kernels"},
  {"resnet18", "resnet18 256 bfloat16", "compile"}, {"minilm", "minilm 32 bfloat16", "compile"},
  {"mnist_1024", "mnist_cnn 1024 float32", "graph"}, {"resnet18_f32", "resnet18 256 float32", "compile"},
}
local results, skipped = {}, {}

local function run_row(row)
  local name, arguments, mode = row[1], row[2] and " " .. row[2], row[3]
  local sides = arguments and {
    {"ours", ours("train", arguments .. " compile")}, {"ours_eager", ours("train", arguments .. " eager")},
    {"torch_eager", torch("train", arguments .. " eager")},
    {"torch_compile", not options.smoke and torch("train", arguments .. " " .. mode) or nil},
  } or {{"ours", ours("kernel_rates", "")}, {"torch_eager", torch("kernel_rates", "")}}
  local result = {reasons = {}, command = sides[1][2]}
  for _, side in ipairs(sides) do
    -- Our own two ways are compared where launches count most and least.
    local needed = side[1] ~= "ours_eager" or row.both or not result.ours
    if side[2] and needed then
      io.stderr:write(("\r%s: %s\27[K"):format(name, side[1]))
      result[side[1]], result.reasons[side[1]] = measure(name .. ", " .. side[1], side[2])
    end
  end
  io.stderr:write "\r\27[K"
  results[name] = result
end

local function shown(value, format) return value and (format or "%.4g"):format(value) or "-" end
local function ratio(a, b) return a and b and a / b end
local function field(side, name) return side and side[name] end

-- The better of our two ways, eager or a graph that is replayed.
local function best(result)
  local graph, eager = result.ours, result.ours_eager
  if graph and (not eager or graph.items_per_s >= eager.items_per_s) then return graph, "graph" end
  return eager, "eager"
end

local card = C.device.describe("cuda", 0)
-- Dense bfloat16 by the data sheets, TFLOP/s.
local function peak_of(name, measured)
  for _, pair in ipairs {{"H100 PCIe", 756}, {"H100 NVL", 835}, {"H100", 989}, {"H200", 989}, {"A100", 312}} do
    if name:find(pair[1], 1, true) then return pair[2], "its data sheet's " .. pair[2] end
  end
  return measured, "the measured rate of products"
end

local function training_table()
  print(("%-14s %11s %11s %11s %11s %10s %9s %9s %9s"):format("training step", "ours graph", "ours eager", "torch",
    "compile", "items/s", "/ torch", "/ compile", "peak MB"))
  for _, row in ipairs(rows) do
    local result = results[row[1]]
    if result and row[2] then
      local mine, plain, eager, compiled = best(result), result.ours_eager, result.torch_eager, result.torch_compile
      print(("%-14s %11s %11s %11s %11s %10s %9s %9s %9s"):format(row[1], shown(field(result.ours, "step_ms")),
        shown(field(plain, "step_ms")), shown(field(eager, "step_ms")), shown(field(compiled, "step_ms")),
        shown(field(mine, "items_per_s"), "%.0f"),
        shown(ratio(field(eager, "step_ms"), field(mine, "step_ms")), "%.2f"),
        shown(ratio(field(compiled, "step_ms"), field(mine, "step_ms")), "%.2f"),
        shown(field(mine, "peak_mb"), "%.0f") .. "/" .. shown(field(eager, "peak_mb"), "%.0f")))
    end
  end
end

local function kernel_names(mine)
  local names = {}
  for key in pairs(mine) do
    local name = key:match "^(.*)_us$"
    if name then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function kernel_table()
  local mine, theirs = results.kernels and results.kernels.ours, results.kernels and results.kernels.torch_eager
  if not mine then return end
  print(("copy %.0f GB/s, products of bfloat16 %.0f TFLOP/s"):format(mine.copy_gbs, mine.matrix_tflops))
  print(("%-26s %11s %7s %11s %7s"):format("kernel", "us", "share", "torch us", "ratio"))
  for _, name in ipairs(kernel_names(mine)) do
    local peer = field(theirs, name .. "_us")
    print(("%-26s %11.4g %7.2f %11s %7s"):format(name, mine[name .. "_us"], mine[name .. "_share"], shown(peer),
      shown(ratio(peer, mine[name .. "_us"]), "%.2f")))
  end
end

-- Goals: the target, the measurement, and the command that repeats it.
local lines = {}
local function goal(text, measured, met, command)
  local verdict = options.smoke and "smoke" or met == nil and "told" or met and "met" or "missed"
  lines[#lines + 1] = table.concat({text, measured or "not measured", measured and verdict or "open", command}, "|")
end

local function training_goal(name, text, unit, side, least)
  local result = results[name]
  local mine, way = nil, nil
  if result then mine, way = best(result) end
  local peer = result and result[side]
  local command = result and result.command or "scripts/bench/gpu/run.lua --rows " .. name
  if not mine then return goal(text, nil, nil, command) end
  local measured = ("%.0f %s/s (%s, peak %.0f MB)"):format(mine.items_per_s, unit, way, mine.peak_mb)
  if mine.operations_per_item then
    local peak, whose = peak_of(card, field(results.kernels and results.kernels.ours, "matrix_tflops"))
    if peak then
      measured = ("%s, MFU %.3f (6N + 12LCT operations a token, of %s TFLOP/s)"):format(measured,
        mine.items_per_s * mine.operations_per_item / peak / 1e12, whose)
    end
  end
  local times = ratio(mine.items_per_s, field(peer, "items_per_s"))
  measured = measured .. (times and ("; %.2f times %s"):format(times, side:gsub("_", " ")) or "; no PyTorch to compare")
  local met = nil
  if least and times then met = times >= least end
  goal(text, measured, met, command)
end

-- The lowest share of those kernels, which decides.
local function share_goal(text, patterns, least)
  local mine = results.kernels and results.kernels.ours
  local command = ours("kernel_rates", "")
  if not mine then return goal(text, nil, nil, command) end
  local lowest, highest, worst = math.huge, 0, "?"
  for _, name in ipairs(kernel_names(mine)) do
    for _, pattern in ipairs(patterns) do
      local share = mine[name .. "_share"]
      if name:find(pattern) then
        if share < lowest then lowest, worst = share, name end
        highest = math.max(highest, share)
      end
    end
  end
  local met = nil
  if least then met = lowest >= least end
  goal(text, ("%.2f (%s) to %.2f of %.0f GB/s, %.0f TFLOP/s"):format(lowest, worst, highest, mine.copy_gbs,
    mine.matrix_tflops), met, command)
end

local function print_goals()
  training_goal("gpt2", "GPT-2 124M in bfloat16 level with torch.compile", "tokens", "torch_compile", 1)
  training_goal("mnist_64", "MNIST CNN, batch 64: 3 times PyTorch eager", "images", "torch_eager", 3)
  share_goal("elementwise kernels at 80 % of the copy's bandwidth", {"^add_", "^mul_", "^gelu_", "^dropout_"}, 0.8)
  share_goal("norm kernels at 80 % of the copy's bandwidth", {"^layer_norm_b?f%d", "^softmax_"}, 0.8)
  share_goal("AdamW against the copy's bandwidth", {"^adamw"})
  share_goal("products against the matrix rate", {"^matmul", "^linear"})
  share_goal("attention against the matrix rate", {"^attention"})
  training_goal("mnist_1024", "MNIST CNN, batch 1024, against PyTorch", "images", "torch_eager")
  training_goal("resnet18", "ResNet-18 on 32 x 32 in bfloat16, against torch.compile", "images", "torch_compile")
  training_goal("resnet18_f32", "ResNet-18 on 32 x 32 in float32, against torch.compile", "images", "torch_compile")
  training_goal("minilm", "MiniLM-shaped encoder in bfloat16, against torch.compile", "tokens", "torch_compile")
end

local wanted
if options.rows:find "%S" then
  wanted = {}
  for name in options.rows:gmatch "[^%s,]+" do wanted[name] = true end
end
print(("card: %s; %s"):format(card, C.device.describe("cuda", -1)))
print("peer: " .. (python and ("PyTorch %s of %s"):format(torch_version, python) or "no PyTorch"))
for _, row in ipairs(rows) do
  if not wanted or wanted[row[1]] then
    if left() < 10 then skipped[#skipped + 1] = row[1] else run_row(row) end
  end
end
training_table()
kernel_table()
if #skipped > 0 then print("left out, since the time was up: " .. table.concat(skipped, " ")) end
print_goals()

local function write(path, mode, text)
  local file = assert(io.open(path, mode))
  file:write(text, "\n")
  file:close()
end
if options.goals then write(options.goals, "a", table.concat(lines, "\n")) end
write(options.json, "w", accelhost.json.encode({
  card = card, driver = C.device.describe("cuda", -1), torch = torch_version, date = os.date "%Y-%m-%d",
  smoke = options.smoke, rows = results,
}, {indent = 2}))
print("written to " .. options.json)
local failed = false
for _, result in pairs(results) do failed = failed or not (result.ours or result.ours_eager) end
os.exit(failed and 1 or 0)
