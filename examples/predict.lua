-- Uses a classifier that training has saved: prints a label and its probability for each text, or for an image.
--
--   accelhost examples/text_classification.lua --data sst2 --model minilm --save runs/sentiment
--   accelhost examples/predict.lua --model runs/sentiment --text "A warm film."
--   cut -f 1 reviews.tsv | accelhost examples/predict.lua --model runs/sentiment --text -
--   accelhost examples/predict.lua --model runs/pets --image cat.jpg
--
-- With --adapter the model has an adapter or virtual tokens (accelhost.peft, or the peft library). Without a model it
-- uses that of text_classification.lua, which trains it first where there is none yet.
local accelhost = require "accelhost"
local models, peft, text = accelhost.models, accelhost.peft, accelhost.text

local args = accelhost.parse_args {
  description = "Classifies texts or an image by a saved model.",
  {"model", nil, "folder of a classifier (default: that of text_classification.lua)", type = "string", metavar = "DIR"},
  {"adapter", nil, "folder of an adapter for the model", type = "string", metavar = "DIR"},
  {"text", "The story is not dull.", "text to classify; -: each line of the standard input", metavar = "TEXT"},
  {"image", nil, "image file to classify, by a model of image_classification.lua", type = "string", metavar = "FILE"},
  {"batch_size", 32, "texts that are computed together", integer = true, minimum = 1},
  {"smoke", false, "the same in a few seconds, with a model that has seen little"},
}

local folder = args.model or args.smoke and "runs/text_classification_smoke" or "runs/text_classification"
local config = io.open(folder .. "/config.json")
if config then
  config:close()
elseif not args.model then
  io.stderr:write(("There is no model in '%s' yet: examples/text_classification.lua trains one.\n"):format(folder))
  local own = arg
  _G.arg = {[0] = arg[0]:gsub("predict%.lua$", "text_classification.lua"), "--save", folder, "--quiet",
    args.smoke and "--smoke" or nil}
  dofile(_G.arg[0])
  _G.arg = own
  accelhost.accelerator:wait_for_everyone()
end

local Auto = args.image and models.AutoModelForImageClassification or models.AutoModelForSequenceClassification
local prepare = args.image and models.AutoImageProcessor.from_pretrained(folder)
  or text.AutoTokenizer.from_pretrained(folder)
local model = Auto.from_pretrained(folder)
if args.adapter then model = peft.PeftModel.from_pretrained(model, args.adapter) end
model:eval()

local function show(texts)
  local batch = args.image and prepare(texts) or prepare(texts, {padding = true, truncation = true})
  local probabilities = accelhost.no_grad(model, batch).logits:softmax(1)
  local best, labels = probabilities:max(1)
  for i = 0, #texts - 1 do
    local label = model.config.id2label[labels[i]:item()]
    print(("%s\t%.4f\t%s"):format(label, best[i]:item(), texts[i + 1]))
  end
  return best[0]:item()
end

if not accelhost.accelerator.is_main_process then os.exit(0) end
if args.image or args.text ~= "-" then
  print(("Probability: %.2f"):format(show {args.image or args.text}))
else
  local waiting = {}
  for line in io.lines() do
    waiting[#waiting + 1] = line
    if #waiting == args.batch_size then
      show(waiting)
      waiting = {}
    end
  end
  if #waiting > 0 then show(waiting) end
end
