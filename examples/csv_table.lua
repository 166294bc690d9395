-- Trains a classifier on a table of one's own: a CSV file with numbers and a column of labels, which may be texts.
--
--   accelhost examples/csv_table.lua --data iris.csv --label species
--   accelhost launch --num_processes 2 examples/csv_table.lua --data iris.csv --label species
--
-- Without a file it writes one: points in a square, labelled by the ring or the corner that they are in.
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

local args = accelhost.parse_args {
  description = "Trains a classifier on a CSV file.",
  {"data", nil, "CSV file with a header (default: generated points)", type = "string", metavar = "FILE"},
  {"label", "label", "name of the column to predict", metavar = "COLUMN"},
  {"test_size", 0.2, "share of the rows that are kept for the test"},
  {"output", "runs/csv_table", "folder for the weights", metavar = "DIR"},
  {"hidden", 32, "width of the hidden layers", integer = true, minimum = 1},
  {"epochs", 20, "passes over the training rows", integer = true, minimum = 1},
  {"batch_size", 32, "rows per process and step", integer = true, minimum = 1},
  {"lr", 5e-3, "learning rate"},
  {"seed", 1, "seed of weights, order and generated points", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds"},
}
if args.smoke then args.epochs = 5 end

local accelerator = accelhost.Accelerator()
accelhost.set_seed(args.seed)

local function write_points(path)
  local file = assert(io.open(path, "w"))
  file:write "x,y,label\n"
  for _ = 1, 1000 do
    local x, y = 2 * math.random() - 1, 2 * math.random() - 1
    local radius = math.sqrt(x * x + y * y)
    file:write(("%.4f,%.4f,%s\n"):format(x, y, radius < 0.5 and "disc" or radius < 1 and "ring" or "corner"))
  end
  file:close()
end

local path = args.data or os.tmpname()
if not args.data then write_points(path) end
local rows = data.load_dataset("csv", {data_files = path, split = "train"})
if not args.data then os.remove(path) end

-- Labels become the numbers 0, 1, ... in the order of their names.
local labels, classes, class_of = rows:column(args.label), {}, {}
if accelhost.is_tensor(labels) then labels = labels:tolist() end
for _, name in ipairs(labels) do
  if not class_of[name] then classes[#classes + 1], class_of[name] = name, true end
end
table.sort(classes)
for i, name in ipairs(classes) do class_of[name] = i - 1 end

-- All other columns are inputs. Mean and deviation are those of the training rows, and belong to the model.
local columns, targets = {}, {}
for _, name in ipairs(rows.column_names) do
  if name ~= args.label then columns[#columns + 1] = rows:column(name):to "float32" end
end
for i, name in ipairs(labels) do targets[i] = class_of[name] end
local order = accelhost.randperm(#rows)
local test_count = math.floor(args.test_size * #rows)
local inputs = accelhost.stack(columns, 1):index_select(0, order)
targets = accelhost.tensor(targets, {dtype = "int64"}):index_select(0, order)
local train_inputs = inputs:narrow(0, test_count, #rows - test_count)

local Classifier = nn.Module:extend "Classifier"

function Classifier:init(mean, deviation)
  self:register_buffer("mean", mean)
  self:register_buffer("deviation", deviation)
  self.layers = nn.Sequential(nn.Linear(mean:numel(), args.hidden), nn.ReLU(), nn.Linear(args.hidden, args.hidden),
    nn.ReLU(), nn.Linear(args.hidden, #classes))
end

function Classifier:forward(x) return self.layers((x - self.mean) / self.deviation) end

local model = Classifier(train_inputs:mean(0), train_inputs:std(0):clamp_min(1e-6))
local optimizer = optim.AdamW(model:parameters(), {lr = args.lr})
local train_loader = data.DataLoader(data.TensorDataset(train_inputs,
  targets:narrow(0, test_count, #rows - test_count)), {batch_size = args.batch_size, shuffle = true})
local test_loader = data.DataLoader(data.TensorDataset(inputs:narrow(0, 0, test_count),
  targets:narrow(0, 0, test_count)), {batch_size = 256})
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

for _ = 1, args.epochs do
  for x, y in train_loader do
    accelerator:backward(F.cross_entropy(model(x), y))
    optimizer:step()
    optimizer:zero_grad()
  end
end

local correct, count = 0, 0
model:eval()
accelhost.no_grad(function()
  for x, y in test_loader do
    local outputs, truth = accelerator:gather_for_metrics(model(x), y)
    correct, count = correct + outputs:argmax(1):eq(truth):sum():item(), count + truth:size(0)
  end
end)
accelerator:save_model(model, args.output)
accelerator:print("classes: " .. table.concat(classes, ", "))
accelerator:print(("Accuracy: %.2f; weights in %s"):format(100 * correct / count, args.output))
