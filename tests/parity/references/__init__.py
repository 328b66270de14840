"""The readers of weights of reference implementations: repositories, and classes of timm.

`read(arguments, weights)` in a family's file returns our model for a reference's constructor arguments and
PyTorch state, and the outputs by the reference's names, for example `logits` and `features/block_0`. Where
sizes of inputs are constants of our model and not among the arguments, it also takes the `shapes` of inputs.
For functions without weights `read(arguments, arrays)` takes all stored arrays, and returns the names of the
inputs among them and what our functions make of these.
"""

import importlib
import re

# {words of the reference's name: the file with its `read`, or another function of that file}
READERS = {
    "AutoFormer/model/supernet_transformer.py": "autoformer",
    "Strawberry-Eat-Mango/PCT_Pytorch model.py Pct": "points.read_pct",
    "Epiphqny/VisTR models/vistr.py VisTR": "vistr",
    "IBM/RegionViT regionvit/regionvit.py RegionViT": "regionvit",
    "CompVis/taming-transformers taming/models/vqgan.py VQModel": "vqgan",
    "KNN_VisionTransformer.py VisionTransformer": "kvt",
    "VITA-Group/TransGAN models_search/ViT_custom.py Generator": "transgan",
    "aqlaboratory/openfold openfold/model/evoformer.py EvoformerStack": "openfold.read_evoformer",
    "aqlaboratory/openfold openfold/model/evoformer.py ExtraMSABlock": "openfold.read_extra",
    "aqlaboratory/openfold openfold/model/structure_module.py StructureModule": "openfold.read_structure",
    "aqlaboratory/openfold openfold/model/template.py TemplatePairStack": "openfold.read_templates",
    "aqlaboratory/openfold openfold/model/embedders.py InputEmbedder": "openfold_ends.read_embedders",
    "aqlaboratory/openfold openfold/model/heads.py": "openfold_ends.read_heads",
    "aqlaboratory/openfold openfold/utils/loss.py: backbone_loss": "openfold_ends.read_losses",
    "bychen515/GLiT glit_models.py": "glit",
    "PyPI DALL-E 0.1 dall_e Decoder": "discrete_vae.read_decoder",
    "PyPI DALL-E 0.1 dall_e Encoder": "discrete_vae.read_encoder",
    "chenxin-dlut/TransT ltr/models/tracking/transt.py TransT": "siamese.read_transt",
    "PeizeSun/TransTrack models/deformable_detrtrack_test.py DeformableDETR": "transtrack",
    "PeizeSun/TransTrack models/tracker.py Tracker": "tracking.read_tracks",
    "chenxin-dlut/TransT pysot_toolkit/trackers/tracker.py Tracker": "tracking.read_target",
    "Edward-Sun/TSP-Detection fcos/my_fcos.py MyFCOS": "tsp_fcos",
    "Edward-Sun/TSP-Detection rcnn/mybox_head.py MyFastRCNNTransformerHead": "tsp_rcnn",
    "ceit_model.py CeIT": "ceit",
    "facebookresearch/vilbert-multi-task vilbert/vilbert.py BertConnectionLayer": "vilbert.read_connection",
    "facebookresearch/vilbert-multi-task vilbert/vilbert.py BertEncoder": "vilbert",
    "huawei-noah/Pretrained-IPT model/ipt.py ipt": "ipt",
    "lib/models/axialnet.py AxialBlock": "medt.read_relative",
    "lib/models/axialnet.py AxialBlock_dynamic": "medt.read_gated",
    "lib/models/axialnet.py AxialBlock_wopos": "medt.read_none",
    "lib/models/axialnet.py ResAxialAttentionUNet": "medt.read_u_net",
    "lib/models/axialnet.py medt_net": "medt",
    "gaopengcuhk/SMCA-DETR models/transformer.py Transformer": "smca",
    "diffusers 0.42.1 DDPMScheduler": "diffusion.read_steps",
    "diffusers 0.42.1 DDIMScheduler": "diffusion.read_steps",
    "diffusers 0.42.1 DDPMScheduler, DDIMScheduler": "diffusion.read_betas",
    "diffusers 0.42.1 UNet2DConditionModel": "unet.read_conditional",
    "diffusers 0.42.1 UNet2DModel": "unet",
    "cy94/sceneformer separate_models/scene_shift_cat.py scene_transformer": "scene_former.read_categories",
    "cy94/sceneformer separate_models/scene_shift_loc_col.py scene_transformer": (
        "scene_former.read_locations"
    ),
    "dddzg/up-detr models/updetr.py UPDETR": "up_detr",
    "ggjy/CMT.pytorch cmt.py CMT": "cmt",
    "linhezheng19/CAT src/cat.py CAT": "cat",
    "piergiaj/pytorch-i3d pytorch_i3d.py InceptionI3d": "i3d",
    "hujiecpp/ISTR projects/ISTR/istr/head.py DynamicHead": "istr",
    "hujiecpp/ISTR projects/ISTR/istr/maskencoding.py Encoder": "istr.read_codes",
    "imagen_pytorch.py GaussianDiffusionContinuousTimes": "diffusion.read_continuous",
    "imagen_pytorch.py Unet": "imagen",
    "microsoft/MeshTransformer metro/modeling/bert/modeling_metro.py METRO": "metro",
    "damo-cv/TransReID model/make_model.py build_transformer_local": "transreid",
    "damo-cv/TransReID model/backbones/vit_pytorch.py TransReID": "transreid.read_plain",
    "liuruijin17/LSTR models/py_utils/kp.py kp": "lstr",
    "lucidrains/DALLE-pytorch dalle_pytorch.py DALLE": "dalle",
    "models.py HVT": "hvt",
    "models/deep_vision_transformer.py DeepVisionTransformer": "deepvit",
    "models/localvit.py LocalVisionTransformer": "localvit",
    "models/shuffle_transformer.py ShuffleTransformer": "shuffle_transformer",
    "models/Hengshuang/model.py PointTransformerCls": "points.read_point_transformer",
    "models/Hengshuang/model.py PointTransformerSeg": "points.read_point_transformer",
    "ppriyank/Video-Action-Transformer-Network-Pytorch- transformer_v2.py Tail": "action_transformer",
    "researchmm/STTN model/sttn.py InpaintGenerator": "sttn",
    "researchmm/TTSR model/MainNet.py MainNet": "ttsr",
    "yrcong/RelTR models/reltr.py RelTR": "reltr",
    "researchmm/TTSR model/SearchTransfer.py SearchTransfer": "ttsr.read_transfer",
    "timm.layers.bottleneck_attn.BottleneckAttn": "botnet.read_attention",
    "timm.models.byobnet.ByobNet": "botnet",
    "timm.models.cait.Cait": "timm.read_cait",
    "timm.models.levit.Levit": "timm.read_levit",
    "timm.models.levit.LevitDistilled": "timm.read_levit",
    "timm.models.mlp_mixer.MlpMixer": "timm.read_mlp_mixer",
    "timm.models.pit.PoolingVisionTransformer": "timm.read_pit",
    "timm.models.resnet.ResNet": "timm.read_resnet",
    "timm.models.swin_transformer.SwinTransformer": "timm.read_swin",
    "timm.models.swin_transformer_v2.SwinTransformerV2": "timm.read_swin_v2",
    "timm.models.tnt.TNT": "timm.read_tnt",
    "timm.models.twins.Twins": "timm.read_twins",
    "timm.models.visformer.Visformer": "timm.read_visformer",
    "timm.models.xcit.Xcit": "timm.read_xcit",
    "tongtybj/TrTr models/trtr.py TRTR": "siamese.read_trtr",
    "transformers 5.23 EsmFoldTriangularSelfAttentionBlock": "esmfold.read_block",
    "transformers 5.23 EsmFoldingTrunk": "esmfold.read_trunk",
    "wilile26811249/ViTGAN models.py Discriminator": "vitgan.read_discriminator",
    "wilile26811249/ViTGAN models.py Generator": "vitgan.read_generator",
}


def reader_of(reference):
    """The `read` for a `reference`, for example "timm 1.0.31 timm.models.levit.Levit", or None.

    If several names occur in it, the longest one decides.
    """
    found = [name for name in READERS if re.search(rf"(?<!\S){re.escape(name)}(?![^\s,(])", reference)]
    if not found:
        return None
    file, _, function = READERS[max(found, key=len)].partition(".")
    return getattr(importlib.import_module(f"tests.parity.references.{file}"), function or "read")
