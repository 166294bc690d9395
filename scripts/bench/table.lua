--- The table of README.md, from a file that `make bench` wrote.
--
-- usage: table.lua check|write      compare README.md with scripts/bench/results/FILE.json, or rewrite its table
--
-- README.md names the file in a comment above the table: <!-- scripts/bench/results/FILE.json -->.
local json = require("accelhost").json

-- {label, row of the bench, factor of its unit (1)}
local lines = {
  {"MNIST CNN, 1 thread, images/s", "mnist_cnn_1t"}, {"2 threads", "mnist_cnn_2t"},
  {"784-128-10 MLP, 1 thread, images/s", "mlp_1t"},
  {"2 threads, another program on one core", "mlp_2t_busy"}, {"2 processes", "mlp_2p"},
  {"ResNet-18, 32x32, 1 thread, images/s", "resnet18_32"},
  {"CNN step in bfloat16, 1 thread, ms", "step_cnn_bfloat16"},
  {"character GPT, 2 threads, tokens/s", "char_gpt_2t"},
  {"MiniLM fine-tuning, 2 threads, tokens/s", "minilm_ft_2t"},
  {"start to the end of the first CNN step, s", "startup_first_step"}, {"memory of a rank, MB", "rss_mnist"},
  {"all-reduce of 4.8 MB, 2 processes, ms", "allreduce_4m8", 1e-3},
}

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

-- Three significant digits, thousands with commas.
local function shown(value)
  if value < 100 then return (("%.3g"):format(value)) end
  local unit = 10 ^ (math.floor(math.log(value) / math.log(10)) - 2)
  local digits = ("%d"):format(math.floor(value / unit + 0.5) * unit)
  return (digits:reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", ""))
end

local function table_of(path)
  local rows = {}
  for _, row in ipairs(json.decode(read(path)).rows) do rows[row.name] = row end
  local text = {"| | accelhost | PyTorch | ratio |", "| --- | --- | --- | --- |"}
  for _, line in ipairs(lines) do
    local label, name, factor = line[1], line[2], line[3] or 1
    local row = assert(rows[name], path .. " has no row " .. name)
    assert(type(row.ratio) == "number", path .. ": row " .. name .. " has no peer")
    text[#text + 1] = ("| %s | %s | %s | %s |"):format(label, shown(row.ours * factor), shown(row.peer * factor),
      (row.ratio >= 9.95 and "%.0f" or "%.1f"):format(row.ratio))
  end
  return table.concat(text, "\n") .. "\n"
end

local readme = read "README.md"
local comment = "<!%-%- (scripts/bench/results/[%w_.]+%.json) %-%->\n+"
local before, path, old, after = readme:match("^(.-" .. comment .. ")(|.-|\n)(\n.*)$")
assert(path, "README.md names no results file above its table")
local new = table_of(path)
if arg[1] == "write" then
  local file = assert(io.open("README.md", "wb"))
  file:write(before, new, after)
  file:close()
elseif old ~= new then
  io.stderr:write("README.md: its table is not that of ", path, "; run accelhost scripts/bench/table.lua write\n")
  os.exit(1)
end
