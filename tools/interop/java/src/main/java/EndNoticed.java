import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.concurrent.CountDownLatch;

/** An input stream that lets others wait for its end. */
final class EndNoticed extends FilterInputStream {

    private final CountDownLatch ended = new CountDownLatch(1);

    EndNoticed(InputStream in) {
        super(in);
    }

    void await() throws InterruptedException {
        ended.await();
    }

    private int noticed(int n) {
        if (n < 0) {
            ended.countDown();
        }
        return n;
    }

    @Override
    public int read() throws IOException {
        return noticed(super.read());
    }

    @Override
    public int read(byte[] b, int off, int len) throws IOException {
        return noticed(super.read(b, off, len));
    }
}
