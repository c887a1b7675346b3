package gpu
import ("testing";"os";"tilework/dtype")
func TestDumpTmp(t *testing.T){
 s,_ := wgmma.ParseShape("128x128x128/4x32/6")
 p := blockScaled(t, 512, 512, 512, dtype.BF16, 1, 128)
 m, err := wgmma.Emit(wgmma.Config(&p, s)); if err!=nil {t.Fatal(err)}
 os.WriteFile("/tmp/blocks/tall.ptx", []byte(m.String()), 0o644)
}
