"""Models: from tokens, pixels or numbers to hidden states. One file per family: configuration, model, sizes.

The inputs are `images` (B, H, W, C), `videos` (B, F, H, W, C), `token_ids` (B, T), or images and texts
together. Encoders return `sequence_output` and, where the family has one, `pooled_output`; models of images
and texts return an output for each side. `model.hidden_states` are the states between the blocks; models of
images in stages also have `model.maps`, the last map of each stage. `Family.sizes` names the published
sizes, and `Family.from_size(name)` makes one with new weights. docs/models.md lists all
of them, and whose checkpoints can be read.
"""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.models.detection.conditional_detr import ConditionalDETR, ConditionalDETRConfig
    from keras_tfm.models.detection.deformable_detr import DeformableDETR, DeformableDETRConfig
    from keras_tfm.models.detection.detr import DETR, DETRConfig
    from keras_tfm.models.detection.istr import ISTR, ISTRConfig
    from keras_tfm.models.detection.lstr import LSTR, LSTRConfig
    from keras_tfm.models.detection.mask2former import Mask2Former, Mask2FormerConfig
    from keras_tfm.models.detection.mask_former import MaskFormer, MaskFormerConfig
    from keras_tfm.models.detection.max_deeplab import MaxDeepLab, MaxDeepLabConfig
    from keras_tfm.models.detection.medt import GatedAxialUNet, MedT, MedTConfig
    from keras_tfm.models.detection.ped import PED, PEDConfig
    from keras_tfm.models.detection.reltr import RelTR, RelTRConfig
    from keras_tfm.models.detection.rt_detr import RTDETR, RTDETRConfig
    from keras_tfm.models.detection.smca import SMCA, SMCAConfig
    from keras_tfm.models.detection.tsp_fcos import TSPFCOS, TSPFCOSConfig
    from keras_tfm.models.detection.tsp_rcnn import TSPRCNN, TSPRCNNConfig, TSPRCNNHead, TSPRCNNHeadConfig
    from keras_tfm.models.multimodal.clip import CLIP, CLIPConfig
    from keras_tfm.models.multimodal.clip4clip import CLIP4Clip, CLIP4ClipConfig
    from keras_tfm.models.multimodal.mmt import MMT, MMTConfig
    from keras_tfm.models.multimodal.siglip import SigLIP, SigLIPConfig
    from keras_tfm.models.multimodal.vilbert import ViLBERT, ViLBERTConfig
    from keras_tfm.models.multimodal.vision_encoder_decoder import (
        VisionEncoderDecoder,
        VisionEncoderDecoderConfig,
    )
    from keras_tfm.models.pictures.dalle import DALLE, DALLEConfig
    from keras_tfm.models.pictures.discrete_vae import DiscreteVAE, DiscreteVAEConfig
    from keras_tfm.models.pictures.dit import DiT, DiTConfig
    from keras_tfm.models.pictures.image_transformer import ImageTransformer, ImageTransformerConfig
    from keras_tfm.models.pictures.imagegpt import ImageGPT, ImageGPTConfig, Palette
    from keras_tfm.models.pictures.imagen import ImagenUNet, ImagenUNetConfig
    from keras_tfm.models.pictures.ipt import IPT, IPTConfig
    from keras_tfm.models.pictures.mdsr import MDSR, MDSRConfig
    from keras_tfm.models.pictures.scene_former import SceneFormer, SceneFormerConfig
    from keras_tfm.models.pictures.text_imagen import Imagen, ImagenConfig
    from keras_tfm.models.pictures.transgan import (
        TransGAN,
        TransGANConfig,
        TransGANDiscriminator,
        TransGANDiscriminatorConfig,
    )
    from keras_tfm.models.pictures.ttsr import TTSR, TTSRConfig
    from keras_tfm.models.pictures.unet import DiffusionUNet, DiffusionUNetConfig
    from keras_tfm.models.pictures.vitgan import (
        ViTGAN,
        ViTGANConfig,
        ViTGANDiscriminator,
        ViTGANDiscriminatorConfig,
    )
    from keras_tfm.models.pictures.vqgan import VQGAN, VQGANConfig
    from keras_tfm.models.points.pct import PCT, PCTConfig
    from keras_tfm.models.points.point_transformer import PointTransformer, PointTransformerConfig
    from keras_tfm.models.pose.hand_transformer import HandTransformer, HandTransformerConfig
    from keras_tfm.models.pose.hot_net import HOTNet, HOTNetConfig
    from keras_tfm.models.pose.metro import METRO, METROConfig
    from keras_tfm.models.proteins.alphafold import AlphaFold, AlphaFoldConfig
    from keras_tfm.models.proteins.embedders import InputEmbedder, PairPositionTable, RecyclingEmbedder
    from keras_tfm.models.proteins.esm2 import ESM2, ESM2Config
    from keras_tfm.models.proteins.esmfold import ESMFold, ESMFoldConfig
    from keras_tfm.models.proteins.evoformer import Evoformer, EvoformerConfig
    from keras_tfm.models.proteins.folding_trunk import FoldingTrunk, FoldingTrunkConfig
    from keras_tfm.models.proteins.structure import StructureModule
    from keras_tfm.models.proteins.templates import TemplateAttention, TemplatePairs
    from keras_tfm.models.series.autoregressive import Autoregressive, AutoregressiveConfig
    from keras_tfm.models.text.albert import ALBERT, ALBERTConfig
    from keras_tfm.models.text.bart import BART, BARTConfig
    from keras_tfm.models.text.bert import BERT, BERTConfig
    from keras_tfm.models.text.deberta import DeBERTa, DeBERTaConfig
    from keras_tfm.models.text.distilbert import DistilBERT, DistilBERTConfig
    from keras_tfm.models.text.fnet import FNet, FNetConfig
    from keras_tfm.models.text.gemma2 import Gemma2, Gemma2Config
    from keras_tfm.models.text.gpt2 import GPT2, GPT2Config
    from keras_tfm.models.text.llama import Llama, LlamaConfig
    from keras_tfm.models.text.mistral import Mistral, MistralConfig
    from keras_tfm.models.text.qwen2 import Qwen2, Qwen2Config
    from keras_tfm.models.text.recurrent import (
        Recurrent,
        RecurrentConfig,
        delayed_many_to_many,
        many_to_many,
        many_to_one,
        one_to_many,
        one_to_one,
    )
    from keras_tfm.models.text.recurrent_seq2seq import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
    from keras_tfm.models.text.roberta import RoBERTa, RoBERTaConfig
    from keras_tfm.models.text.t5 import T5, T5Config
    from keras_tfm.models.text.transformer import Transformer, TransformerConfig
    from keras_tfm.models.tracking.tmt import TMT, TMTConfig
    from keras_tfm.models.tracking.transt import TransT, TransTConfig
    from keras_tfm.models.tracking.transtrack import TransTrack, TransTrackConfig
    from keras_tfm.models.tracking.trtr import TrTr, TrTrConfig
    from keras_tfm.models.tracking.vistr import VisTR, VisTRConfig
    from keras_tfm.models.video.action_transformer import ActionTransformer, ActionTransformerConfig
    from keras_tfm.models.video.conv_transformer import ConvTransformer, ConvTransformerConfig
    from keras_tfm.models.video.i3d import I3D, I3DConfig
    from keras_tfm.models.video.mart import MART, MARTConfig
    from keras_tfm.models.video.mega import MEGA, MEGAConfig
    from keras_tfm.models.video.sttn import STTN, STTNConfig, STTNDiscriminator, STTNDiscriminatorConfig
    from keras_tfm.models.video.timesformer import TimeSformer, TimeSformerConfig
    from keras_tfm.models.video.videomae import VideoMAE, VideoMAEConfig
    from keras_tfm.models.video.vivit import ViViT, ViViTConfig
    from keras_tfm.models.vision.autoformer import AutoFormer, AutoFormerConfig
    from keras_tfm.models.vision.autoformer_space import SearchSpace
    from keras_tfm.models.vision.autoformer_supernet import AutoFormerSupernet
    from keras_tfm.models.vision.botnet import BoTNet, BoTNetConfig
    from keras_tfm.models.vision.cait import CaiT, CaiTConfig
    from keras_tfm.models.vision.cat import CAT, CATConfig
    from keras_tfm.models.vision.ceit import CeiT, CeiTConfig
    from keras_tfm.models.vision.cmt import CMT, CMTConfig
    from keras_tfm.models.vision.cpvt import CPVT, CPVTConfig
    from keras_tfm.models.vision.cvt import CvT, CvTConfig
    from keras_tfm.models.vision.deepvit import DeepViT, DeepViTConfig
    from keras_tfm.models.vision.deit import DeiT, DeiTConfig
    from keras_tfm.models.vision.dinov2 import DINOv2, DINOv2Config
    from keras_tfm.models.vision.dinov3 import DINOv3, DINOv3Config
    from keras_tfm.models.vision.glit import GLiT, GLiTConfig
    from keras_tfm.models.vision.hvt import HVT, HVTConfig
    from keras_tfm.models.vision.hybrid_vit import HybridViT, HybridViTConfig
    from keras_tfm.models.vision.kvt import KVT, KVTConfig
    from keras_tfm.models.vision.levit import LeViT, LeViTConfig
    from keras_tfm.models.vision.localvit import LocalViT, LocalViTConfig
    from keras_tfm.models.vision.mit import MiT, MiTConfig
    from keras_tfm.models.vision.mlp_mixer import MLPMixer, MLPMixerConfig
    from keras_tfm.models.vision.pit import PiT, PiTConfig
    from keras_tfm.models.vision.regionvit import RegionViT, RegionViTConfig
    from keras_tfm.models.vision.resnet import BiT, BiTConfig, ResNet, ResNetConfig
    from keras_tfm.models.vision.resnet_vd import ResNetVD, ResNetVDConfig
    from keras_tfm.models.vision.shuffle_transformer import ShuffleTransformer, ShuffleTransformerConfig
    from keras_tfm.models.vision.swin import Swin, SwinConfig
    from keras_tfm.models.vision.swin_v2 import SwinV2, SwinV2Config
    from keras_tfm.models.vision.tiny import tiny_config
    from keras_tfm.models.vision.tnt import TNT, TNTConfig
    from keras_tfm.models.vision.transreid import TransReID, TransReIDConfig
    from keras_tfm.models.vision.twins import Twins, TwinsConfig
    from keras_tfm.models.vision.visformer import Visformer, VisformerConfig
    from keras_tfm.models.vision.vit import ViT, ViTConfig
    from keras_tfm.models.vision.vit_mae import ViTMAE, ViTMAEConfig
    from keras_tfm.models.vision.vitas import ViTAS, ViTASConfig
    from keras_tfm.models.vision.xcit import XCiT, XCiTConfig
else:
    on_demand.begin(globals())
